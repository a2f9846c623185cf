"""Every form of every verb and noun of the lexicon, against tables that were read through by a person."""

from __future__ import annotations

from nmt.data.grammar import english, nouns, verbs
from nmt.data.grammar.french import Features, agree, conjugation, plural
from nmt.data.grammar.verbs import Verb

# infinitive; present: je, il, nous, ils; imperfect: il; future: il; past participle; present participle
FRENCH_VERBS = """
accepter accepte accepte acceptons acceptent acceptait acceptera accepté acceptant; acheter achète achète achetons
achètent achetait achètera acheté achetant; admirer admire admire admirons admirent admirait admirera admiré
admirant; aider aide aide aidons aident aidait aidera aidé aidant; aimer aime aime aimons aiment aimait aimera aimé
aimant; aller vais va allons vont allait ira allé allant; annoncer annonce annonce annonçons annoncent annonçait
annoncera annoncé annonçant; appartenir appartiens appartient appartenons appartiennent appartenait appartiendra
appartenu appartenant; appeler appelle appelle appelons appellent appelait appellera appelé appelant; apporter
apporte apporte apportons apportent apportait apportera apporté apportant; arriver arrive arrive arrivons arrivent
arrivait arrivera arrivé arrivant; arroser arrose arrose arrosons arrosent arrosait arrosera arrosé arrosant;
arrêter arrête arrête arrêtons arrêtent arrêtait arrêtera arrêté arrêtant; attendre attends attend attendons
attendent attendait attendra attendu attendant; attraper attrape attrape attrapons attrapent attrapait attrapera
attrapé attrapant; avoir ai a avons ont avait aura eu ayant; boire bois boit buvons boivent buvait boira bu buvant;
briller brille brille brillons brillent brillait brillera brillé brillant; brûler brûle brûle brûlons brûlent
brûlait brûlera brûlé brûlant; cacher cache cache cachons cachent cachait cachera caché cachant; casser casse casse
cassons cassent cassait cassera cassé cassant; chanter chante chante chantons chantent chantait chantera chanté
chantant; chercher cherche cherche cherchons cherchent cherchait cherchera cherché cherchant; choisir choisis
choisit choisissons choisissent choisissait choisira choisi choisissant; commander commande commande commandons
commandent commandait commandera commandé commandant; commencer commence commence commençons commencent commençait
commencera commencé commençant; comprendre comprends comprend comprenons comprennent comprenait comprendra compris
comprenant; conduire conduis conduit conduisons conduisent conduisait conduira conduit conduisant; connaître connais
connaît connaissons connaissent connaissait connaîtra connu connaissant; conseiller conseille conseille conseillons
conseillent conseillait conseillera conseillé conseillant; continuer continue continue continuons continuent
continuait continuera continué continuant; couper coupe coupe coupons coupent coupait coupera coupé coupant; courir
cours court courons courent courait courra couru courant; craindre crains craint craignons craignent craignait
craindra craint craignant; crier crie crie crions crient criait criera crié criant; croire crois croit croyons
croient croyait croira cru croyant; danser danse danse dansons dansent dansait dansera dansé dansant; demander
demande demande demandons demandent demandait demandera demandé demandant; dessiner dessine dessine dessinons
dessinent dessinait dessinera dessiné dessinant; devoir dois doit devons doivent devait devra dû devant; dire dis
dit disons disent disait dira dit disant; disparaître disparais disparaît disparaissons disparaissent disparaissait
disparaîtra disparu disparaissant; donner donne donne donnons donnent donnait donnera donné donnant; dormir dors
dort dormons dorment dormait dormira dormi dormant; dresser dresse dresse dressons dressent dressait dressera dressé
dressant; décider décide décide décidons décident décidait décidera décidé décidant; découvrir découvre découvre
découvrons découvrent découvrait découvrira découvert découvrant; décrire décris décrit décrivons décrivent
décrivait décrira décrit décrivant; dépêcher dépêche dépêche dépêchons dépêchent dépêchait dépêchera dépêché
dépêchant; détester déteste déteste détestons détestent détestait détestera détesté détestant; embrasser embrasse
embrasse embrassons embrassent embrassait embrassera embrassé embrassant; encourager encourage encourage
encourageons encouragent encourageait encouragera encouragé encourageant; entendre entends entend entendons
entendent entendait entendra entendu entendant; entrer entre entre entrons entrent entrait entrera entré entrant;
envoyer envoie envoie envoyons envoient envoyait enverra envoyé envoyant; espérer espère espère espérons espèrent
espérait espérera espéré espérant; essayer essaie essaie essayons essaient essayait essaiera essayé essayant;
expliquer explique explique expliquons expliquent expliquait expliquera expliqué expliquant; fermer ferme ferme
fermons ferment fermait fermera fermé fermant; féliciter félicite félicite félicitons félicitent félicitait
félicitera félicité félicitant; goûter goûte goûte goûtons goûtent goûtait goûtera goûté goûtant; habiter habite
habite habitons habitent habitait habitera habité habitant; hurler hurle hurle hurlons hurlent hurlait hurlera hurlé
hurlant; hésiter hésite hésite hésitons hésitent hésitait hésitera hésité hésitant; interrompre interromps
interrompt interrompons interrompent interrompait interrompra interrompu interrompant; inviter invite invite
invitons invitent invitait invitera invité invitant; jouer joue joue jouons jouent jouait jouera joué jouant; laver
lave lave lavons lavent lavait lavera lavé lavant; lever lève lève levons lèvent levait lèvera levé levant; lire lis
lit lisons lisent lisait lira lu lisant; manger mange mange mangeons mangent mangeait mangera mangé mangeant; mentir
mens ment mentons mentent mentait mentira menti mentant; montrer montre montre montrons montrent montrait montrera
montré montrant; nager nage nage nageons nagent nageait nagera nagé nageant; nettoyer nettoie nettoie nettoyons
nettoient nettoyait nettoiera nettoyé nettoyant; nourrir nourris nourrit nourrissons nourrissent nourrissait
nourrira nourri nourrissant; obéir obéis obéit obéissons obéissent obéissait obéira obéi obéissant; offrir offre
offre offrons offrent offrait offrira offert offrant; ordonner ordonne ordonne ordonnons ordonnent ordonnait
ordonnera ordonné ordonnant; organiser organise organise organisons organisent organisait organisera organisé
organisant; oublier oublie oublie oublions oublient oubliait oubliera oublié oubliant; ouvrir ouvre ouvre ouvrons
ouvrent ouvrait ouvrira ouvert ouvrant; parler parle parle parlons parlent parlait parlera parlé parlant; partir
pars part partons partent partait partira parti partant; partager partage partage partageons partagent partageait
partagera partagé partageant; penser pense pense pensons pensent pensait pensera pensé pensant; perdre perds perd
perdons perdent perdait perdra perdu perdant; permettre permets permet permettons permettent permettait permettra
permis permettant; planter plante plante plantons plantent plantait plantera planté plantant; pleurer pleure pleure
pleurons pleurent pleurait pleurera pleuré pleurant; plier plie plie plions plient pliait pliera plié pliant; porter
porte porte portons portent portait portera porté portant; posséder possède possède possédons possèdent possédait
possédera possédé possédant; pouvoir peux peut pouvons peuvent pouvait pourra pu pouvant; prendre prends prend
prenons prennent prenait prendra pris prenant; prier prie prie prions prient priait priera prié priant; promettre
promets promet promettons promettent promettait promettra promis promettant; préférer préfère préfère préférons
préfèrent préférait préférera préféré préférant; préparer prépare prépare préparons préparent préparait préparera
préparé préparant; prétendre prétends prétend prétendons prétendent prétendait prétendra prétendu prétendant; prêter
prête prête prêtons prêtent prêtait prêtera prêté prêtant; publier publie publie publions publient publiait publiera
publié publiant; quitter quitte quitte quittons quittent quittait quittera quitté quittant; refuser refuse refuse
refusons refusent refusait refusera refusé refusant; regarder regarde regarde regardons regardent regardait
regardera regardé regardant; remarquer remarque remarque remarquons remarquent remarquait remarquera remarqué
remarquant; remercier remercie remercie remercions remercient remerciait remerciera remercié remerciant; rencontrer
rencontre rencontre rencontrons rencontrent rencontrait rencontrera rencontré rencontrant; reposer repose repose
reposons reposent reposait reposera reposé reposant; rester reste reste restons restent restait restera resté
restant; retourner retourne retourne retournons retournent retournait retournera retourné retournant; revenir
reviens revient revenons reviennent revenait reviendra revenu revenant; rire ris rit rions rient riait rira ri
riant; réparer répare répare réparons réparent réparait réparera réparé réparant; répondre réponds répond répondons
répondent répondait répondra répondu répondant; répéter répète répète répétons répètent répétait répétera répété
répétant; réveiller réveille réveille réveillons réveillent réveillait réveillera réveillé réveillant; rêver rêve
rêve rêvons rêvent rêvait rêvera rêvé rêvant; saluer salue salue saluons saluent saluait saluera salué saluant;
savoir sais sait savons savent savait saura su sachant; siffler siffle siffle sifflons sifflent sifflait sifflera
sifflé sifflant; sourire souris sourit sourions sourient souriait sourira souri souriant; suivre suis suit suivons
suivent suivait suivra suivi suivant; tomber tombe tombe tombons tombent tombait tombera tombé tombant; tousser
tousse tousse toussons toussent toussait toussera toussé toussant; traduire traduis traduit traduisons traduisent
traduisait traduira traduit traduisant; travailler travaille travaille travaillons travaillent travaillait
travaillera travaillé travaillant; trouver trouve trouve trouvons trouvent trouvait trouvera trouvé trouvant;
téléphoner téléphone téléphone téléphonons téléphonent téléphonait téléphonera téléphoné téléphonant; vendre vends
vend vendons vendent vendait vendra vendu vendant; venir viens vient venons viennent venait viendra venu venant;
verser verse verse versons versent versait versera versé versant; visiter visite visite visitons visitent visitait
visitera visité visitant; voir vois voit voyons voient voyait verra vu voyant; voler vole vole volons volent volait
volera volé volant; vouloir veux veut voulons veulent voulait voudra voulu voulant; voyager voyage voyage voyageons
voyagent voyageait voyagera voyagé voyageant; écouter écoute écoute écoutons écoutent écoutait écoutera écouté
écoutant; écrire écris écrit écrivons écrivent écrivait écrira écrit écrivant; être suis est sommes sont était sera
été étant
"""
# base; third person; past; past participle; gerund
ENGLISH_VERBS = """
accept accepts accepted accepted accepting; admire admires admired admired admiring; advise advises advised advised
advising; allow allows allowed allowed allowing; announce announces announced announced announcing; answer answers
answered answered answering; arrive arrives arrived arrived arriving; ask asks asked asked asking; be is was been
being; begin begins began begun beginning; believe believes believed believed believing; belong belongs belonged
belonged belonging; break breaks broke broken breaking; bring brings brought brought bringing; burn burns burned
burned burning; buy buys bought bought buying; call calls called called calling; carry carries carried carried
carrying; catch catches caught caught catching; choose chooses chose chosen choosing; claim claims claimed claimed
claiming; clean cleans cleaned cleaned cleaning; close closes closed closed closing; come comes came come coming;
congratulate congratulates congratulated congratulated congratulating; continue continues continued continued
continuing; cough coughs coughed coughed coughing; cry cries cried cried crying; cut cuts cut cut cutting; dance
dances danced danced dancing; decide decides decided decided deciding; describe describes described described
describing; disappear disappears disappeared disappeared disappearing; discover discovers discovered discovered
discovering; draw draws drew drawn drawing; dream dreams dreamed dreamed dreaming; drink drinks drank drunk
drinking; drive drives drove driven driving; eat eats ate eaten eating; encourage encourages encouraged encouraged
encouraging; enter enters entered entered entering; explain explains explained explained explaining; fall falls fell
fallen falling; fear fears feared feared fearing; feed feeds fed fed feeding; find finds found found finding; fold
folds folded folded folding; follow follows followed followed following; forget forgets forgot forgotten forgetting;
get gets got got getting; give gives gave given giving; go goes went gone going; greet greets greeted greeted
greeting; hate hates hated hated hating; have has had had having; hear hears heard heard hearing; help helps helped
helped helping; hesitate hesitates hesitated hesitated hesitating; hide hides hid hidden hiding; hope hopes hoped
hoped hoping; howl howls howled howled howling; hurry hurries hurried hurried hurrying; interrupt interrupts
interrupted interrupted interrupting; invite invites invited invited inviting; kiss kisses kissed kissed kissing;
know knows knew known knowing; laugh laughs laughed laughed laughing; leave leaves left left leaving; lend lends
lent lent lending; lie lies lied lied lying; like likes liked liked liking; listen listens listened listened
listening; live lives lived lived living; look looks looked looked looking; lose loses lost lost losing; love loves
loved loved loving; meet meets met met meeting; need needs needed needed needing; notice notices noticed noticed
noticing; obey obeys obeyed obeyed obeying; offer offers offered offered offering; open opens opened opened opening;
order orders ordered ordered ordering; organise organises organised organised organising; own owns owned owned
owning; phone phones phoned phoned phoning; plant plants planted planted planting; play plays played played playing;
pour pours poured poured pouring; pray prays prayed prayed praying; prefer prefers preferred preferred preferring;
prepare prepares prepared prepared preparing; promise promises promised promised promising; publish publishes
published published publishing; read reads read read reading; refuse refuses refused refused refusing; repair
repairs repaired repaired repairing; repeat repeats repeated repeated repeating; rest rests rested rested resting;
return returns returned returned returning; run runs ran run running; say says said said saying; see sees saw seen
seeing; sell sells sold sold selling; send sends sent sent sending; shine shines shone shone shining; shout shouts
shouted shouted shouting; share shares shared shared sharing; show shows showed shown showing; sing sings sang sung
singing; sleep sleeps slept slept sleeping; smile smiles smiled smiled smiling; speak speaks spoke spoken speaking;
stay stays stayed stayed staying; steal steals stole stolen stealing; stop stops stopped stopped stopping; swim
swims swam swum swimming; take takes took taken taking; taste tastes tasted tasted tasting; tell tells told told
telling; thank thanks thanked thanked thanking; think thinks thought thought thinking; train trains trained trained
training; translate translates translated translated translating; travel travels travelled travelled travelling; try
tries tried tried trying; understand understands understood understood understanding; visit visits visited visited
visiting; wait waits waited waited waiting; wake wakes woke woken waking; want wants wanted wanted wanting; wash
washes washed washed washing; water waters watered watered watering; wear wears wore worn wearing; whistle whistles
whistled whistled whistling; work works worked worked working; write writes wrote written writing
"""
# English singular and plural, French singular and plural; mass nouns have no plural
NOUN_FORMS = """
man men homme hommes; woman women femme femmes; boy boys garçon garçons; girl girls fille filles; child children
enfant enfants; neighbour neighbours voisin voisins; teacher teachers professeur professeurs; doctor doctors médecin
médecins; student students étudiant étudiants; baker bakers boulanger boulangers; farmer farmers fermier fermiers;
singer singers chanteur chanteurs; painter painters peintre peintres; writer writers écrivain écrivains; king kings
roi rois; queen queens reine reines; prince princes prince princes; princess princesses princesse princesses; witch
witches sorcière sorcières; actress actresses actrice actrices; waitress waitresses serveuse serveuses; nurse nurses
infirmière infirmières; dancer dancers danseuse danseuses; journalist journalists journaliste journalistes; lawyer
lawyers avocat avocats; judge judges juge juges; policeman policemen policier policiers; soldier soldiers soldat
soldats; hero heroes héros héros; thief thieves voleur voleurs; tourist tourists touriste touristes; engineer
engineers ingénieur ingénieurs; cook cooks cuisinier cuisiniers; gardener gardeners jardinier jardiniers; musician
musicians musicien musiciens; guest guests invité invités; dwarf dwarfs nain nains; sailor sailors marin marins;
butcher butchers boucher bouchers; friend friends ami amis; brother brothers frère frères; sister sisters sœur
sœurs; mother mothers mère mères; father fathers père pères; son sons fils fils; daughter daughters fille filles;
uncle uncles oncle oncles; aunt aunts tante tantes; cousin cousins cousin cousins; grandmother grandmothers
grand-mère grands-mères; grandfather grandfathers grand-père grands-pères; husband husbands mari maris; wife wives
femme femmes; cat cats chat chats; dog dogs chien chiens; horse horses cheval chevaux; bird birds oiseau oiseaux;
mouse mice souris souris; cow cows vache vaches; rabbit rabbits lapin lapins; owl owls hibou hiboux; hen hens poule
poules; wolf wolves loup loups; bear bears ours ours; fox foxes renard renards; frog frogs grenouille grenouilles;
donkey donkeys âne ânes; goat goats chèvre chèvres; hamster hamsters hamster hamsters; lion lions lion lions;
elephant elephants éléphant éléphants; monkey monkeys singe singes; tortoise tortoises tortue tortues; duck ducks
canard canards; goose geese oie oies; squirrel squirrels écureuil écureuils; hedgehog hedgehogs hérisson hérissons;
apple apples pomme pommes; pear pears poire poires; orange oranges orange oranges; cake cakes gâteau gâteaux; egg
eggs œuf œufs; sandwich sandwiches sandwich sandwichs; tomato tomatoes tomate tomates; carrot carrots carotte
carottes; cheese cheeses fromage fromages; cherry cherries cerise cerises; soup soups soupe soupes; salad salads
salade salades; bean beans haricot haricots; lobster lobsters homard homards; pancake pancakes crêpe crêpes;
strawberry strawberries fraise fraises; onion onions oignon oignons; pie pies tarte tartes; peach peaches pêche
pêches; herring herrings hareng harengs; book books livre livres; letter letters lettre lettres; newspaper
newspapers journal journaux; message messages message messages; magazine magazines magazine magazines; dictionary
dictionaries dictionnaire dictionnaires; notebook notebooks cahier cahiers; map maps carte cartes; poem poems poème
poèmes; story stories histoire histoires; novel novels roman romans; report reports rapport rapports; article
articles article articles; legend legends légende légendes; key keys clé clés; knife knives couteau couteaux; lamp
lamps lampe lampes; glass glasses verre verres; bottle bottles bouteille bouteilles; bag bags sac sacs; box boxes
boîte boîtes; watch watches montre montres; umbrella umbrellas parapluie parapluies; pen pens stylo stylos; bucket
buckets seau seaux; rope ropes corde cordes; axe axes hache haches; hammer hammers marteau marteaux; basket baskets
panier paniers; plate plates assiette assiettes; spoon spoons cuillère cuillères; towel towels serviette serviettes;
pillow pillows oreiller oreillers; blanket blankets couverture couvertures; mirror mirrors miroir miroirs; photo
photos photo photos; toy toys jouet jouets; ball balls balle balles; gift gifts cadeau cadeaux; tool tools outil
outils; ladder ladders échelle échelles; telephone telephones téléphone téléphones; computer computers ordinateur
ordinateurs; radio radios radio radios; ring rings bague bagues; jewel jewels bijou bijoux; candle candles bougie
bougies; ticket tickets billet billets; suitcase suitcases valise valises; guitar guitars guitare guitares; violin
violins violon violons; piano pianos piano pianos; harp harps harpe harpes; trumpet trumpets trompette trompettes;
flute flutes flûte flûtes; dress dresses robe robes; shirt shirts chemise chemises; hat hats chapeau chapeaux; coat
coats manteau manteaux; scarf scarves écharpe écharpes; skirt skirts jupe jupes; jacket jackets veste vestes; shoe
shoes chaussure chaussures; boot boots botte bottes; tie ties cravate cravates; glove gloves gant gants; uniform
uniforms uniforme uniformes; car cars voiture voitures; bicycle bicycles vélo vélos; boat boats bateau bateaux;
train trains train trains; plane planes avion avions; truck trucks camion camions; motorcycle motorcycles moto
motos; helicopter helicopters hélicoptère hélicoptères; tractor tractors tracteur tracteurs; door doors porte
portes; window windows fenêtre fenêtres; drawer drawers tiroir tiroirs; cupboard cupboards armoire armoires; gate
gates grille grilles; table tables table tables; chair chairs chaise chaises; bed beds lit lits; sofa sofas canapé
canapés; armchair armchairs fauteuil fauteuils; shelf shelves étagère étagères; carpet carpets tapis tapis; bench
benches banc bancs; stool stools tabouret tabourets; flower flowers fleur fleurs; rose roses rose roses; tree trees
arbre arbres; oak oaks chêne chênes; bush bushes buisson buissons; hedge hedges haie haies; tulip tulips tulipe
tulipes; wall walls mur murs; fountain fountains fontaine fontaines; statue statues statue statues; lake lakes lac
lacs; hill hills colline collines; monument monuments monument monuments; well wells puits puits; ruin ruins ruine
ruines; party parties fête fêtes; concert concerts concert concerts; meeting meetings réunion réunions; lesson
lessons leçon leçons; meal meals repas repas; wedding weddings mariage mariages; match matches match matchs; journey
journeys voyage voyages; exam exams examen examens; show shows spectacle spectacles; war wars guerre guerres; storm
storms orage orages; fire fires incendie incendies; flood floods inondation inondations; disaster disasters
catastrophe catastrophes; secret secrets secret secrets; idea ideas idée idées; problem problems problème problèmes;
question questions question questions; answer answers réponse réponses; dream dreams rêve rêves; lie lies mensonge
mensonges; mistake mistakes erreur erreurs; plan plans plan plans; rule rules règle règles; song songs chanson
chansons; noise noises bruit bruits; voice voices voix voix; melody melodies mélodie mélodies; house houses maison
maisons; kitchen kitchens cuisine cuisines; garden gardens jardin jardins; bedroom bedrooms chambre chambres; cellar
cellars cave caves; office offices bureau bureaux; park parks parc parcs; forest forests forêt forêts; village
villages village villages; church churches église églises; castle castles château châteaux; shop shops magasin
magasins; hamlet hamlets hameau hameaux; hall halls hall halls; shed sheds hangar hangars; attic attics grenier
greniers; tower towers tour tours; courtyard courtyards cour cours; cave caves grotte grottes; school schools école
écoles; market markets marché marchés; station stations gare gares; hospital hospitals hôpital hôpitaux; hotel
hotels hôtel hôtels; restaurant restaurants restaurant restaurants; library libraries bibliothèque bibliothèques;
museum museums musée musées; theatre theatres théâtre théâtres; farm farms ferme fermes; factory factories usine
usines; bakery bakeries boulangerie boulangeries; harbour harbours port ports; pool pools piscine piscines; airport
airports aéroport aéroports; university universities université universités; beach beaches plage plages; zoo zoos
zoo zoos; bridge bridges pont ponts; island islands île îles; balcony balconies balcon balcons; terrace terraces
terrasse terrasses; roof roofs toit toits; square squares place places
"""


def rows(table: str) -> list[list[str]]:
    return [row.split() for row in table.replace("\n", " ").split(";")]


def all_verbs() -> list[Verb]:
    values = [value if isinstance(value, list) else [value] for value in vars(verbs).values()]
    return [item for value in values for item in value if isinstance(item, Verb)]


def test_french_verbs() -> None:
    table = rows(FRENCH_VERBS)
    assert {row[0] for row in table} == {verb.infinitive for verb in all_verbs()}
    for infinitive, *expected in table:
        forms = conjugation(infinitive)
        present = [forms.form("present", Features(person, many)) for person, many in _JE_IL_NOUS_ILS]
        others = [forms.form("imperfect", Features()), forms.form("future", Features())]
        assert [*present, *others, forms.participle, forms.present_participle] == expected


_JE_IL_NOUS_ILS = ((1, False), (3, False), (1, True), (3, True))


def test_endings_that_follow_from_a_stem() -> None:
    manger, lever = conjugation("manger"), conjugation("lever")
    persons = [Features(person, many) for many in (False, True) for person in (1, 2, 3)]
    assert [manger.form("imperfect", who) for who in persons] == (
        ["mangeais", "mangeais", "mangeait", "mangions", "mangiez", "mangeaient"]
    )
    assert [lever.form("present", who) for who in persons] == ["lève", "lèves", "lève", "levons", "levez", "lèvent"]
    assert [lever.form("conditional", who) for who in persons] == (
        ["lèverais", "lèverais", "lèverait", "lèverions", "lèveriez", "lèveraient"]
    )


def test_imperative_of_tu() -> None:
    imperatives = {"aller": "va", "ouvrir": "ouvre", "manger": "mange", "finir": "finis", "prendre": "prends"}
    assert {verb: conjugation(verb).imperative_singular for verb in imperatives} == imperatives


def test_english_verbs() -> None:
    table = rows(ENGLISH_VERBS)
    assert {row[0] for row in table} == {verb.base for verb in all_verbs()} - {"can", "must"}
    for base, *expected in table:
        forms = [english.third_person(base), english.past(base), english.participle(base), english.gerund(base)]
        assert forms == expected


def test_nouns() -> None:
    table = sorted(rows(NOUN_FORMS))
    lexicon = [noun for kind in nouns.NOUNS.values() for noun in kind if not noun.mass]
    assert table == sorted([noun.english, noun.english_plural, noun.french, noun.french_plural] for noun in lexicon)


def test_english_verb_group() -> None:
    def group(tense: str, negation: str = "", base: str = "sleep", *, question: bool = False) -> str:
        words = english.verb_group(base, tense, Features(), negation, question=question)
        return " ".join(text or "·" for text, _ in words)

    assert group("present") == "· sleeps"
    assert group("present", "not") == "does not · sleep"
    assert group("past", question=True) == "did · sleep"
    assert group("past", "never") == "never · slept"
    assert group("present", "no longer") == "no longer · sleeps"
    assert group("future", "not") == "will not · sleep"
    assert group("progressive") == "was · sleeping"
    assert group("pluperfect", "never") == "had never · slept"
    assert group("present", "not", "be") == "is not ·"
    assert group("past", "not", "can") == "could not ·"
    assert group("present", "not", "can") == "cannot ·"


def test_agreement() -> None:
    assert [agree("vu", Features(3, many, feminine)) for many in (False, True) for feminine in (False, True)] == [
        "vu", "vue", "vus", "vues",
    ]  # fmt: skip
    assert agree("pris", Features(3, True)) == "pris"
    assert agree("beau", Features(3, True, True), "belle") == "belles"
    assert [plural(noun) for noun in ("cheval", "seau", "nez", "bras", "roi")] == (
        ["chevaux", "seaux", "nez", "bras", "rois"]
    )
