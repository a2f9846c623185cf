"""Nouns and names: "english french gender", by semantic class.

The class decides what a noun can do: who can read, what can be read, where one can live. Classes are small and
concrete so that every combination that the grammar allows is a sentence that somebody could say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nmt.data.grammar import english, french
from nmt.data.grammar.french import Features


@dataclass(frozen=True)
class Noun:
    """A noun in both languages. A mass noun has no plural and takes the partitive."""

    english: str
    french: str
    feminine: bool
    kind: str
    mass: bool = False

    @cached_property
    def french_plural(self) -> str:
        """grands-pères, grands-mères, chevaux, bijoux."""
        first, hyphen, rest = self.french.partition("-")
        if hyphen:
            return french.plural(first) + "-" + french.plural(rest)
        return (
            "bijoux" if self.french == "bijou" else "hiboux" if self.french == "hibou" else french.plural(rest or first)
        )

    @cached_property
    def english_plural(self) -> str:
        """women, boxes."""
        return english.plural(self.english)

    def features(self, plural: bool) -> Features:
        """What agrees with it."""
        return Features(3, plural, self.feminine)


@dataclass(frozen=True)
class Place(Noun):
    """A place, with the prepositions of being there and of going there."""

    at: tuple[str, str] = ("in", "dans")
    to: tuple[str, str] | None = ("to", "dans")


_NOUNS = {
    "person": """
man homme m; woman femme f; boy garçon m; girl fille f; child enfant m; neighbour voisin m; teacher professeur m;
doctor médecin m; student étudiant m; baker boulanger m; farmer fermier m; singer chanteur m; painter peintre m;
writer écrivain m; king roi m; queen reine f; prince prince m; princess princesse f; witch sorcière f;
actress actrice f; waitress serveuse f; nurse infirmière f; dancer danseuse f; journalist journaliste m;
lawyer avocat m; judge juge m; policeman policier m; soldier soldat m; hero héros m; thief voleur m;
tourist touriste m; engineer ingénieur m; cook cuisinier m; gardener jardinier m; musician musicien m;
guest invité m; dwarf nain m; sailor marin m; butcher boucher m""",
    "kin": """
friend ami m; brother frère m; sister sœur f; mother mère f; father père m; son fils m; daughter fille f; uncle oncle m;
aunt tante f; cousin cousin m; grandmother grand-mère f; grandfather grand-père m; husband mari m; wife femme f""",
    "animal": """
cat chat m; dog chien m; horse cheval m; bird oiseau m; mouse souris f; cow vache f; rabbit lapin m; owl hibou m;
hen poule f; wolf loup m; bear ours m; fox renard m; frog grenouille f; donkey âne m; goat chèvre f; hamster hamster m;
lion lion m; elephant éléphant m; monkey singe m; tortoise tortue f; duck canard m; goose oie f; squirrel écureuil m;
hedgehog hérisson m""",
    "food": """
apple pomme f; pear poire f; orange orange f; cake gâteau m; egg œuf m; sandwich sandwich m; tomato tomate f;
carrot carotte f; cheese fromage m; cherry cerise f; soup soupe f; salad salade f; bean haricot m; lobster homard m;
pancake crêpe f; strawberry fraise f; onion oignon m; pie tarte f; peach pêche f; herring hareng m""",
    "foodstuff": """
bread pain m; butter beurre m; meat viande f; rice riz m; jam confiture f; honey miel m; chocolate chocolat m;
sugar sucre m; ham jambon m""",
    "drink": """
water eau f; milk lait m; wine vin m; tea thé m; coffee café m; juice jus m; beer bière f; lemonade limonade f""",
    "document": """
book livre m; letter lettre f; newspaper journal m; message message m; magazine magazine m;
dictionary dictionnaire m; notebook cahier m; map carte f""",
    "text": """
poem poème m; story histoire f; novel roman m; report rapport m; article article m; legend légende f""",
    "object": """
key clé f; knife couteau m; lamp lampe f; glass verre m; bottle bouteille f; bag sac m; box boîte f; watch montre f;
umbrella parapluie m; pen stylo m; bucket seau m; rope corde f; axe hache f; hammer marteau m; basket panier m;
plate assiette f; spoon cuillère f; towel serviette f; pillow oreiller m; blanket couverture f; mirror miroir m;
photo photo f; toy jouet m; ball balle f; gift cadeau m; tool outil m; ladder échelle f; telephone téléphone m;
computer ordinateur m; radio radio f; ring bague f; jewel bijou m; candle bougie f; ticket billet m;
suitcase valise f""",
    "instrument": """
guitar guitare f; violin violon m; piano piano m; harp harpe f; trumpet trompette f; flute flûte f""",
    "clothing": """
dress robe f; shirt chemise f; hat chapeau m; coat manteau m; scarf écharpe f; skirt jupe f; jacket veste f;
shoe chaussure f; boot botte f; tie cravate f; glove gant m; uniform uniforme m""",
    "vehicle": """
car voiture f; bicycle vélo m; boat bateau m; train train m; plane avion m; truck camion m; motorcycle moto f;
helicopter hélicoptère m; tractor tracteur m""",
    "opening": """
door porte f; window fenêtre f; drawer tiroir m; cupboard armoire f; gate grille f""",
    "furniture": """
table table f; chair chaise f; bed lit m; sofa canapé m; armchair fauteuil m; shelf étagère f; carpet tapis m;
bench banc m; stool tabouret m""",
    "plant": """
flower fleur f; rose rose f; tree arbre m; oak chêne m; bush buisson m; hedge haie f; tulip tulipe f""",
    "landmark": """
wall mur m; fountain fontaine f; statue statue f; lake lac m; hill colline f; monument monument m;
well puits m; ruin ruine f""",
    "event": """
party fête f; concert concert m; meeting réunion f; lesson leçon f; meal repas m; wedding mariage m;
match match m; journey voyage m; exam examen m; show spectacle m""",
    "calamity": """
war guerre f; storm orage m; fire incendie m; flood inondation f; disaster catastrophe f""",
    "idea": """
secret secret m; idea idée f; problem problème m; question question f; answer réponse f; dream rêve m; lie mensonge m;
mistake erreur f; plan plan m; rule règle f""",
    "sound": """
song chanson f; noise bruit m; voice voix f; melody mélodie f""",
}
_MASS = ("foodstuff", "drink")

# by "preposition of being there / of going there"
_PLACES = {
    ("in dans", "to dans"): """
house maison f; kitchen cuisine f; garden jardin m; bedroom chambre f; cellar cave f; office bureau m; park parc m;
forest forêt f; village village m; church église f; castle château m; shop magasin m; hamlet hameau m; hall hall m;
shed hangar m; attic grenier m; tower tour f; courtyard cour f; cave grotte f""",
    ("at à", "to à"): """
school école f; market marché m; station gare f; hospital hôpital m; hotel hôtel m; restaurant restaurant m;
library bibliothèque f; museum musée m; theatre théâtre m; farm ferme f; factory usine f; bakery boulangerie f;
harbour port m; pool piscine f; airport aéroport m; university université f; beach plage f; zoo zoo m""",
    ("on sur", ""): """
bridge pont m; island île f; balcony balcon m; terrace terrasse f; roof toit m; square place f""",
}
_NAMES = """
Marie f; Paul m; Anne f; Pierre m; Sophie f; Jacques m; Hélène f; Émile m; Julie f; Antoine m; Claire f; Louis m;
Alice f; Henri m; Nadia f; Karim m; Inès f; Omar m; Léa f; Thomas m; Olivier m; Chloé f; Élise f; Ivan m
"""
# english, french, preposition of place and of direction; "" for towns: à
_REGIONS = """
Paris Paris à; Lyon Lyon à; Bordeaux Bordeaux à; London Londres à; Rome Rome à; Geneva Genève à; Brussels Bruxelles à;
Athens Athènes à; Amsterdam Amsterdam à; Berlin Berlin à; Oslo Oslo à; Lisbon Lisbonne à; France France en;
Italy Italie en; Spain Espagne en; Germany Allemagne en; Belgium Belgique en; Hungary Hongrie en; Canada Canada au;
Japan Japon au; Portugal Portugal au; Mexico Mexique au; Brazil Brésil au
"""


@dataclass(frozen=True)
class Name:
    """A proper name, the same in both languages."""

    text: str
    feminine: bool


@dataclass(frozen=True)
class Region:
    """A town or a country, with the French preposition of being and going there: à, en, au."""

    english: str
    french: str
    preposition: str


def _rows(table: str) -> list[list[str]]:
    return [row.split() for row in table.replace("\n", " ").split(";")]


NOUNS: dict[str, list[Noun]] = {
    kind: [Noun(source, target, gender == "f", kind, kind in _MASS) for source, target, gender in _rows(table)]
    for kind, table in _NOUNS.items()
}
PLACES: list[Place] = [
    Place(
        source, target, gender == "f", "place",
        at=(at.split()[0], at.split()[1]), to=(to.split()[0], to.split()[1]) if to else None,
    )
    for (at, to), table in _PLACES.items()
    for source, target, gender in _rows(table)
]  # fmt: skip
NOUNS["place"] = list(PLACES)
NAMES: list[Name] = [Name(text, gender == "f") for text, gender in _rows(_NAMES)]
REGIONS: list[Region] = [Region(*row) for row in _rows(_REGIONS)]

# one has one of each; only one person has that one
ONLY = ("mother", "father", "husband", "wife")
SPOUSES = ("husband", "wife")

PEOPLE = ("person", "kin")
LIVING = ("person", "kin", "animal")
PORTABLE = ("object", "document", "clothing", "instrument")
# one can stand behind or in front of
_BUILDINGS = (
    "house", "church", "castle", "shop", "shed", "tower", "school", "station", "hospital", "hotel", "restaurant",
    "library", "museum", "theatre", "farm", "factory", "bakery",
)  # fmt: skip
BUILDINGS = [item for item in PLACES if item.english in _BUILDINGS]
VISIBLE = (*LIVING, *PORTABLE, "vehicle", "furniture", "plant", "landmark", "place")
# what one may call one's own
OWNED = (
    "kin",
    "animal",
    "document",
    "text",
    "object",
    "instrument",
    "clothing",
    "vehicle",
    "furniture",
    "idea",
    "food",
)
