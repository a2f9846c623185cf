"""Verbs: "english | french", by frame, with the classes of subject and object that make sense.

Particles and prepositions belong to the entry ("look at | regarder", "try | essayer de"), since they rarely match
between the languages. A stative verb's English past is a French imperfect, any other's is a passé composé: so each
English sentence has one translation.
"""

from __future__ import annotations

from dataclasses import dataclass

from nmt.data.grammar.french import Conjugation, conjugation
from nmt.data.grammar.nouns import PEOPLE, PORTABLE, VISIBLE


@dataclass(frozen=True)
class Verb:
    """A verb in both languages."""

    base: str
    infinitive: str
    particle: str = ""  # what follows in English before the object: look at, be afraid of
    preposition: str = ""  # French preposition of the object or of the infinitive
    noun: str = ""  # fixed French noun: avoir faim
    objects: tuple[str, ...] = ()
    stative: bool = False
    reflexive: bool = False
    animal: bool = False  # an animal does it, too

    @property
    def conjugation(self) -> Conjugation:
        """Its French forms."""
        return conjugation(self.infinitive)

    @property
    def etre(self) -> bool:
        """Whether être is its auxiliary."""
        return self.reflexive or self.infinitive in _ETRE


_ETRE = ("partir", "arriver", "tomber", "venir", "revenir", "entrer", "rester", "sortir", "aller", "retourner")


def _verbs(table: str, *, objects: tuple[str, ...] = (), stative: bool = False) -> list[Verb]:
    """Rows "english particle | french preposition"; * marks what animals do, too, + a stative verb."""
    result = []
    for row in table.replace("\n", " ").split(";"):
        source, target = (part.strip() for part in row.strip("*+ ").split(" | "))
        base, _, particle = source.partition(" ")
        reflexive = target.startswith(("se ", "s'"))
        infinitive, *rest = target.removeprefix("se ").removeprefix("s'").split()
        preposition = rest.pop() if rest and rest[-1] in ("à", "de", "pour") else ""
        result.append(
            Verb(
                base, infinitive, particle, preposition, " ".join(rest), objects,
                stative or "+" in row, reflexive, "*" in row,
            )
        )  # fmt: skip
    return result


# nobody does it on purpose: not "to fall", "without coughing"
UNWILLED = (
    "tomber", "tousser", "respirer", "perdre", "casser", "hésiter", "pleurer", "réveiller", "trouver", "entendre",
    "rencontrer", "craindre", "arriver",
)  # fmt: skip

BE = Verb("be", "être", stative=True)
BE_DONE = Verb("be", "être")  # passive: its past is a passé composé
HAVE = Verb("have", "avoir", stative=True)
CAN = Verb("can", "pouvoir", stative=True)
MUST = Verb("must", "devoir", stative=True)

INTRANSITIVE = _verbs("""
*sleep | dormir; work | travailler; sing | chanter; dance | danser; laugh | rire; cry | pleurer; *swim | nager;
*run | courir; smile | sourire; travel | voyager; cough | tousser; *play | jouer; *rest | se reposer;
*eat | manger; shout | crier; whistle | siffler; hesitate | hésiter; pray | prier; *howl | hurler
""")
SUDDEN = _verbs("""
*wake up | se réveiller; *get up | se lever; hurry | se dépêcher; *leave | partir; *arrive | arriver; *fall | tomber;
come | venir; return | revenir; *enter | entrer
""")
THING_EVENTS = [
    *_verbs("disappear | disparaître", objects=(*PORTABLE, "vehicle", "text")),
    *_verbs("burn | brûler", objects=("document", "furniture", "plant", "vehicle")),
    *_verbs("shine | briller", objects=("instrument", "vehicle")),
    *_verbs("fall | tomber", objects=("object", "clothing", "document", "food")),
]
STATES = _verbs(
    """
*be hungry | avoir faim; *be thirsty | avoir soif; *be cold | avoir froid; be right | avoir raison;
be sleepy | avoir sommeil
""",
    stative=True,
)

TRANSITIVE = [
    *_verbs("*see | voir; *look at | regarder; *look for | chercher; *find | trouver", objects=VISIBLE),
    *_verbs("admire | admirer; draw | dessiner; describe | décrire", objects=VISIBLE),
    *_verbs("lose | perdre; choose | choisir; hide | cacher; carry | porter; bring | apporter; take | prendre; "
            "steal | voler", objects=PORTABLE),
    *_verbs("buy | acheter; sell | vendre; choose | choisir", objects=(*PORTABLE, "vehicle", "furniture", "food")),
    *_verbs("break | casser; clean | nettoyer", objects=("object", "furniture", "opening")),
    *_verbs("repair | réparer", objects=("vehicle", "furniture", "opening", "instrument")),
    *_verbs("*eat | manger", objects=("food", "foodstuff")),
    *_verbs("prepare | préparer; taste | goûter; cut | couper", objects=("food",)),
    *_verbs("buy | acheter; sell | vendre; taste | goûter; share | partager", objects=("foodstuff",)),
    *_verbs("buy | acheter; taste | goûter", objects=("drink",)),
    *_verbs("describe | décrire; forget | oublier; announce | annoncer", objects=("calamity",)),
    *_verbs("drink | boire; pour | verser; order | commander", objects=("drink",)),
    *_verbs("read | lire; write | écrire; translate | traduire; publish | publier", objects=("document", "text")),
    *_verbs("open | ouvrir; close | fermer", objects=("opening",)),
    *_verbs("wash | laver; fold | plier; try on | essayer; wear | porter", objects=("clothing",)),
    *_verbs("play | jouer de", objects=("instrument",)),
    *_verbs("drive | conduire; stop | arrêter", objects=("vehicle",)),
    *_verbs("water | arroser; plant | planter; cut | couper", objects=("plant",)),
    *_verbs("help | aider; invite | inviter; thank | remercier; greet | saluer; meet | rencontrer; "
            "wait for | attendre; *follow | suivre; kiss | embrasser; call | appeler; "
            "congratulate | féliciter", objects=PEOPLE),
    *_verbs("feed | nourrir; catch | attraper; follow | suivre; train | dresser", objects=("animal",)),
    *_verbs("visit | visiter; leave | quitter; discover | découvrir", objects=("place",)),
    *_verbs("organise | organiser; interrupt | interrompre; prepare | préparer", objects=("event",)),
    *_verbs("explain | expliquer; understand | comprendre; accept | accepter", objects=("idea",)),
    *_verbs("*hear | entendre; listen to | écouter", objects=("sound",)),
    *_verbs("listen to | écouter", objects=PEOPLE),
    *_verbs("know | connaître; love | aimer; hate | détester", objects=(*PEOPLE, "place"), stative=True),
    *_verbs("fear | craindre", objects=("animal", "calamity"), stative=True),
    *_verbs("own | posséder", objects=("vehicle", "instrument"), stative=True),
]  # fmt: skip
# the object has a preposition in French that is not à + person: never a clitic, relative with dont
ABOUT = [
    *_verbs(
        "speak about | parler de; dream of | rêver de", objects=(*PEOPLE, "place", "event", "calamity", "text", "idea")
    ),
    *_verbs("need | avoir besoin de", objects=(*PORTABLE, "vehicle"), stative=True),
    *_verbs("be afraid of | avoir peur de", objects=("animal", "calamity"), stative=True),
]
DATIVE = _verbs(
    """
speak to | parler à; write to | écrire à; answer | répondre à; obey | obéir à; phone | téléphoner à; lie to | mentir à;
smile at | sourire à
""",
    objects=PEOPLE,
)
BELONG = _verbs("belong to | appartenir à", objects=PEOPLE, stative=True)[0]
# with a recipient; what stands before a pronoun recipient differs: "gives her the book"
GIVING = _verbs(
    """
give | donner; show | montrer; lend | prêter; offer | offrir; send | envoyer; sell | vendre; bring | apporter
""",
    objects=(*PORTABLE, "food"),
)
LOCATED = _verbs("+live | habiter; work | travailler; *stay | rester; *sleep | dormir; *arrive | arriver; play | jouer")
DIRECTED = _verbs("*go | aller; *return | retourner; *come | venir")

SAYING = _verbs("""
say | dire; +think | penser; +believe | croire; +know | savoir; +hope | espérer; claim | prétendre;
announce | annoncer; explain | expliquer; notice | remarquer; dream | rêver; repeat | répéter
""")
TRYING = _verbs("""
+want | vouloir; +hope | espérer; try | essayer de; begin | commencer à; refuse | refuser de; forget | oublier de;
decide | décider de; hesitate | hésiter à; +prefer | préférer; promise | promettre de;
+like | aimer; continue | continuer à; +need | avoir besoin de
""")
ASKING = _verbs(
    """
ask | demander à; allow | permettre à; tell | dire à; order | ordonner à; advise | conseiller à; help | aider;
invite | inviter; encourage | encourager
""",
    objects=PEOPLE,
)
