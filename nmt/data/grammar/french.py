"""French inflection: verbs, nouns, adjectives.

Regular forms are computed, irregular ones listed. The imperfect and the present participle come from the stem of
"nous", the conditional from the stem of the future, as in a school grammar.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True)
class Features:
    """Person (1, 2, 3), number and gender: what verbs, adjectives and participles agree with."""

    person: int = 3
    plural: bool = False
    feminine: bool = False

    @property
    def index(self) -> int:
        """Row of a conjugation table: je, tu, il, nous, vous, ils."""
        return self.person - 1 + 3 * self.plural


IMPERFECT = ("ais", "ais", "ait", "ions", "iez", "aient")
FUTURE = ("ai", "as", "a", "ons", "ez", "ont")


@dataclass(frozen=True)
class Conjugation:
    """The forms of a verb that the grammar uses."""

    infinitive: str
    present: tuple[str, ...]
    future_stem: str
    participle: str
    imperfect_stem: str = ""
    gerund: str = ""
    imperative: str = ""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        stem = self.imperfect_stem or self.present[3].removesuffix("ons")
        soft = {"ge": "g", "ç": "c"}  # nous mangions, nous commencions
        before_i = next((stem.removesuffix(end) + to for end, to in soft.items() if stem.endswith(end)), stem)
        self.tables["present"] = self.present
        self.tables["imperfect"] = tuple((before_i if end[0] == "i" else stem) + end for end in IMPERFECT)
        self.tables["future"] = tuple(self.future_stem + end for end in FUTURE)
        self.tables["conditional"] = tuple(self.future_stem + end for end in IMPERFECT)

    def form(self, tense: str, features: Features) -> str:
        """A finite form; `tense` is present, imperfect, future or conditional."""
        return self.tables[tense][features.index]

    @property
    def present_participle(self) -> str:
        """mangeant, finissant."""
        return self.gerund or self.present[3].removesuffix("ons") + "ant"

    @property
    def imperative_singular(self) -> str:
        """The form for tu: no s after e (mange, ouvre, va)."""
        form = self.present[1]
        return self.imperative or (form.removesuffix("s") if form.endswith(("es", "vas")) else form)


# infinitive: je tu il nous vous ils | stem of the future | past participle
_IRREGULAR = """
être: suis es est sommes êtes sont | ser | été
avoir: ai as a avons avez ont | aur | eu
aller: vais vas va allons allez vont | ir | allé
venir: viens viens vient venons venez viennent | viendr | venu
revenir: reviens reviens revient revenons revenez reviennent | reviendr | revenu
appartenir: appartiens appartiens appartient appartenons appartenez appartiennent | appartiendr | appartenu
partir: pars pars part partons partez partent | partir | parti
sortir: sors sors sort sortons sortez sortent | sortir | sorti
dormir: dors dors dort dormons dormez dorment | dormir | dormi
mentir: mens mens ment mentons mentez mentent | mentir | menti
courir: cours cours court courons courez courent | courr | couru
ouvrir: ouvre ouvres ouvre ouvrons ouvrez ouvrent | ouvrir | ouvert
découvrir: découvre découvres découvre découvrons découvrez découvrent | découvrir | découvert
offrir: offre offres offre offrons offrez offrent | offrir | offert
voir: vois vois voit voyons voyez voient | verr | vu
savoir: sais sais sait savons savez savent | saur | su
connaître: connais connais connaît connaissons connaissez connaissent | connaîtr | connu
disparaître: disparais disparais disparaît disparaissons disparaissez disparaissent | disparaîtr | disparu
prendre: prends prends prend prenons prenez prennent | prendr | pris
comprendre: comprends comprends comprend comprenons comprenez comprennent | comprendr | compris
promettre: promets promets promet promettons promettez promettent | promettr | promis
mettre: mets mets met mettons mettez mettent | mettr | mis
dire: dis dis dit disons dites disent | dir | dit
lire: lis lis lit lisons lisez lisent | lir | lu
écrire: écris écris écrit écrivons écrivez écrivent | écrir | écrit
boire: bois bois boit buvons buvez boivent | boir | bu
croire: crois crois croit croyons croyez croient | croir | cru
vouloir: veux veux veut voulons voulez veulent | voudr | voulu
pouvoir: peux peux peut pouvons pouvez peuvent | pourr | pu
devoir: dois dois doit devons devez doivent | devr | dû
suivre: suis suis suit suivons suivez suivent | suivr | suivi
vivre: vis vis vit vivons vivez vivent | vivr | vécu
rire: ris ris rit rions riez rient | rir | ri
sourire: souris souris sourit sourions souriez sourient | sourir | souri
peindre: peins peins peint peignons peignez peignent | peindr | peint
conduire: conduis conduis conduit conduisons conduisez conduisent | conduir | conduit
construire: construis construis construit construisons construisez construisent | construir | construit
recevoir: reçois reçois reçoit recevons recevez reçoivent | recevr | reçu
faire: fais fais fait faisons faites font | fer | fait
pleuvoir: pleus pleus pleut pleuvons pleuvez pleuvent | pleuvr | plu
décrire: décris décris décrit décrivons décrivez décrivent | décrir | décrit
traduire: traduis traduis traduit traduisons traduisez traduisent | traduir | traduit
craindre: crains crains craint craignons craignez craignent | craindr | craint
interrompre: interromps interromps interrompt interrompons interrompez interrompent | interrompr | interrompu
permettre: permets permets permet permettons permettez permettent | permettr | permis
apprendre: apprends apprends apprend apprenons apprenez apprennent | apprendr | appris
envoyer: envoie envoies envoie envoyons envoyez envoient | enverr | envoyé
"""
_EXTRA = {
    "être": {"imperfect_stem": "ét", "gerund": "étant", "imperative": "sois"},
    "avoir": {"gerund": "ayant", "imperative": "aie"},
    "savoir": {"gerund": "sachant", "imperative": "sache"},
}


def _parse(table: str) -> dict[str, Conjugation]:
    result = {}
    for line in table.strip().splitlines():
        infinitive, rest = line.split(": ")
        present, future, participle = (part.strip() for part in rest.split("|"))
        extra = _EXTRA.get(infinitive, {})
        result[infinitive] = Conjugation(infinitive, tuple(present.split()), future, participle, **extra)
    return result


IRREGULAR = _parse(_IRREGULAR)


@cache
def conjugation(infinitive: str) -> Conjugation:
    """The conjugation of a verb, regular (-er, -ir like finir, -re like vendre) or listed."""
    if infinitive in IRREGULAR:
        return IRREGULAR[infinitive]
    stem = infinitive[:-2]
    if infinitive.endswith("er"):
        return _first_group(infinitive, stem)
    if infinitive.endswith("ir"):
        present = tuple(stem + end for end in ("is", "is", "it", "issons", "issez", "issent"))
        return Conjugation(infinitive, present, infinitive, stem + "i")
    present = tuple(stem + end for end in ("s", "s", "", "ons", "ez", "ent"))
    return Conjugation(infinitive, present, infinitive[:-1], stem + "u")


def _first_group(infinitive: str, stem: str) -> Conjugation:
    strong, future = stem, infinitive  # strong: the stem before a silent ending
    if stem.endswith(("oy", "uy", "ay")):  # nettoyer, essuyer, essayer
        strong = stem[:-1] + "i"
        future = strong + "er"
    elif stem.endswith("ppel"):  # appeler
        strong = stem + "l"
        future = strong + "er"
    elif len(stem) > 2 and stem[-2] == "e" and stem[-1] not in "aeiouyrx":  # acheter, lever, promener
        strong = stem[:-2] + "è" + stem[-1]
        future = strong + "er"
    elif len(stem) > 2 and stem[-2] == "é" and stem[-1] not in "aeiouy":  # espérer, préférer: not in the future
        strong = stem[:-2] + "è" + stem[-1]
    before_o = {"g": stem + "e", "c": stem[:-1] + "ç"}.get(stem[-1], stem)
    present = (strong + "e", strong + "es", strong + "e", before_o + "ons", stem + "ez", strong + "ent")
    return Conjugation(infinitive, present, future, stem + "é")


def plural(form: str) -> str:
    """The plural of a noun or of a masculine adjective, where it is regular."""
    if form[-1] in "sxz":
        return form
    if form.endswith(("eau", "au")):
        return form + "x"
    if form.endswith("al"):
        return form[:-2] + "aux"
    return form + "s"


_FEMININE_ENDINGS = (
    ("e", "e"), ("eux", "euse"), ("er", "ère"), ("if", "ive"), ("ien", "ienne"), ("on", "onne"), ("el", "elle"),
    ("anc", "anche"), ("eau", "elle"),
)  # fmt: skip


def feminine(masculine: str) -> str:
    """The feminine of an adjective or participle, where it is regular."""
    for ending, replacement in _FEMININE_ENDINGS:
        if masculine.endswith(ending):
            return masculine.removesuffix(ending) + replacement
    return masculine + "e"


def agree(masculine: str, features: Features, feminine_form: str = "") -> str:
    """An adjective or participle in the gender and number of what it agrees with."""
    if features.feminine:
        singular = feminine_form or feminine(masculine)
        return singular + "s" if features.plural else singular
    return plural(masculine) if features.plural else masculine
