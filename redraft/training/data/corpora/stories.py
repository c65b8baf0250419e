"""The grammar of an infinite corpus of short English stories with known probabilities.

The stories come from a probabilistic grammar, so quantities that are unknown for ordinary text are exact here: the
log-probability of any text (-inf outside the language), the entropy that no model can beat, the attributes of a story
(who, where, season, mood, ...) and a summary of it in one sentence. Nothing is downloaded or stored: story i
of seed s is a pure function of (s, i).

    STORY_LANGUAGE.story(0, 7).text          # the eighth story of seed 0
    STORY_LANGUAGE.log_prob(text)            # nats, exact
    STORY_LANGUAGE.entropy()                 # nats per story, exact

There are six kinds of nodes. `_Terminal` emits words; `_Sequential` and `_Alternatives` combine nodes; `_Assign`
stores an entry in a slot; `_Emit` emits a form of it later (a name, a pronoun, the thing that was found); `_CaseOf`
branches on it. `_Node.draw` samples a derivation. `_Node.expand` follows the derivations that a traversal allows:
those of a given text (`_ParseTraversal`), or all of them (`_AllDerivations`). `_Node.accumulate_states` computes
entropy, mean length and support exactly. `_Node.openings` proves the grammar unambiguous: the next few words decide
every choice (`Language.lookahead`), so a text has at most one derivation, and its probability is that of the text.

Training, validation and test stories come from independent streams: `split_seed(seed, "valid")`. They are not
deduplicated, since the language is large: two stories are equal with probability `Language.collision()`, 6e-14 for
`STORY_LANGUAGE`, so a million training stories and ten thousand test stories share one with probability 6e-4.
"""

from __future__ import annotations

from redraft.training.data.corpora.grammar import _Entry
from redraft.training.data.corpora.grammar_rules import CaseRule, DrawRule, RuleBook, _phrasings, entry
from redraft.training.data.corpora.language import Language

# --- the stories ---


def _people(women: str, men: str) -> list[_Entry]:
    she = [entry(name=name, they="she", They="She", them="her", their="her") for name in women.split()]
    he = [entry(name=name, they="he", They="He", them="him", their="his") for name in men.split()]
    return she + he


def _names(names: str) -> list[_Entry]:
    return [entry(name=name) for name in names.split()]


def _places(where: str, *, spot: str, play: str) -> list[_Entry]:
    """Return places of one kind, written "in the park / on the beach", with the same spots and pastimes."""
    return [entry(name=at.split()[-1], at=at, spot=spot, play=play) for at in where.split(" / ")]


_HEROES = _people(
    "Anna Clara Emma Ida Julia Lena Mara Nora Rosa Sara Vera Zoe",
    "Adam Ben David Felix Hugo Jonas Leo Max Noah Oscar Paul Simon",
)
_FRIENDS = _people("Agnes Bella Dora Greta Martha Olga Ruth Tilda", "Albert Bruno Carl Edgar Frank Martin Otto Walter")
_THINGS = _names("kite lantern scarf hat basket box blanket bag drum flute doll puppet ball cup boat cushion")
_COLORS = _names("red blue green yellow white brown grey purple")
_ANIMALS = _names("kitten puppy rabbit lamb goat goose hen pony")
_NEEDS = _names("hungry cold thirsty frightened tired lost shy muddy")
# Interchangeable phrases have the same number of words, and optional parts come last. The position of a word therefore
# determines its role, and a model that generates in any order need not count words.

_SEASONS = (
    entry(
        name="spring",
        weather="The first flowers were open. / A soft rain was falling. / Birds sang in every tree. / "
        "The wind smelled of grass. / Small clouds crossed the sky.",
        treat="fresh pancakes / mint tea / lemon cake",
    ),
    entry(
        name="summer",
        weather="The air was still warm. / Bees hummed in the clover. / The air smelled of roses. / "
        "Swallows flew across the sky. / Not a single leaf moved.",
        treat="cold lemonade / ripe cherries / lemon ice",
    ),
    entry(
        name="autumn",
        weather="Yellow leaves covered the ground. / A cool wind was blowing. / Mist hung over the roofs. / "
        "The air smelled of smoke. / Wild geese were flying south.",
        treat="apple cake / pumpkin soup / sweet plums",
    ),
    entry(
        name="winter",
        weather="Fresh snow covered the roofs. / A cold wind was blowing. / The puddles were all frozen. / "
        "The sky was pale grey. / Snow fell without a sound.",
        treat="hot chocolate / warm gingerbread / roasted chestnuts",
    ),
)
_PLACES = (
    *_places(
        "at the harbour / at the lake / by the river / on the beach",
        spot="beside the pier / near the nets / by the bridge / behind the boats",
        play="watched the boats / counted the ducks / threw flat stones",
    ),
    *_places(
        "in the park / in the orchard / in the garden / at the farm",
        spot="beside a bench / behind the pond / under the oak / by the gate",
        play="climbed a tree / watched the clouds / fed the birds",
    ),
    *_places(
        "at the market / in the square / at the station / at the theatre",
        spot="beside the fountain / behind a stall / under an arch / near the clock",
        play="heard a band / fed the pigeons / watched the crowd",
    ),
    *_places(
        "in the forest / on the hill / in the meadow / in the valley",
        spot="beside a stream / among the ferns / under a pine / behind a rock",
        play="followed a path / watched a hawk / picked some herbs",
    ),
)
_MOODS = (
    entry(
        name="lonely",
        outcome="felt lonely no more / felt much less alone / thought of good friends",
    ),
    entry(
        name="sad",
        outcome="felt sad no more / began to smile again / felt so much better",
    ),
    entry(
        name="bored",
        outcome="felt bored no more / forgot the slow hours / wished for more adventures",
    ),
    entry(
        name="worried",
        outcome="felt worried no more / felt calm and brave / slept without a care",
    ),
    entry(
        name="tired",
        outcome="felt tired no more / felt fresh and strong / slept like a stone",
    ),
    entry(
        name="cheerful",
        outcome="felt happier than ever / sang a cheerful song / laughed with pure joy",
    ),
)
_TRADES = (
    entry(name="baker", gift="a loaf of bread / a bag of rolls"),
    entry(name="gardener", gift="a bunch of roses / a pot of mint"),
    entry(name="farmer", gift="a dozen brown eggs / a bag of apples"),
    entry(name="teacher", gift="a book of poems / a map of stars"),
    entry(name="painter", gift="a picture of boats / a jar of paint"),
    entry(name="potter", gift="a small clay bird / a round clay bowl"),
    entry(name="tailor", gift="a pair of socks / a pair of gloves"),
    entry(name="beekeeper", gift="a jar of honey / a tall wax candle"),
    entry(name="sailor", gift="a big white shell / a story about whales"),
    entry(name="carpenter", gift="a small wooden horse / a long wooden spoon"),
)
_STORY_RULES = RuleBook(
    {
        "story": "{opening} {plot} {giving} {end}",
        # Where, when and in what mood
        "opening": "One {season} {day}, {hero} felt {mood} and {moved} to the {place}.",
        "season": DrawRule("season", _SEASONS),
        "day": ("morning", "afternoon", "day", "Saturday", "Sunday"),
        "hero": DrawRule("hero", _HEROES),
        "mood": DrawRule("mood", _MOODS),
        "moved": ("walked", "went", "cycled", "wandered", "hurried"),
        "place": DrawRule("place", _PLACES),
        # Something is found, helped or made
        "plot": ("{plot=find} {find} {owner}", "{plot=help} {help} {owner}", "{plot=make} {make} {wish}"),
        "find": "{hero.They} found a {colour} {thing} {spot}.",
        "help": "{hero.They} helped a {need} {animal} {spot}.",
        "make": "{hero.They} made a {colour} {thing} {spot}.",
        "owner": "It belonged to {friend} the {trade}.",
        "wish": "It was for {friend} the {trade}.",
        "spot": _phrasings("place", "spot", 4),
        "colour": DrawRule("look", _COLORS),
        "need": DrawRule("look", _NEEDS),
        "thing": DrawRule("thing", _THINGS),
        "animal": DrawRule("thing", _ANIMALS),
        "friend": DrawRule("friend", _FRIENDS),
        "trade": DrawRule("trade", _TRADES),
        # The thing is given away
        "giving": "{hero.They} {brought} the {thing.name} to {friend.name}, who {smiled} and gave {hero.them} {gift}.",
        "brought": ("brought", "took"),
        "smiled": ("smiled", "laughed", "danced", "sang"),
        "gift": _phrasings("trade", "gift", 2),
        # The mood changes; optionally, the story continues
        "end": {"{last}, {turn}": 2, "{first}, {turn} {more}": 2},
        "last": ("That evening", "That night"),
        "first": ("At home", "After supper"),
        "turn": "{hero.name} {outcome}.",
        "outcome": _phrasings("mood", "outcome", 3),
        "more": ("Later they {together}.", "Soon they {together}. {weather}"),
        "together": ("shared {treat}", "{play}"),
        "treat": _phrasings("season", "treat", 3),
        "play": _phrasings("place", "play", 3),
        "weather": _phrasings("season", "weather", 5),
        # The summary in one sentence
        "summary": "In {season.name}, {hero.name} {deed} a {look.name} {thing.name} {place.at} and brings it to "
        "{friend.name} the {trade.name}.",
        "deed": CaseRule(("plot", "name"), {"find": "finds", "help": "helps", "make": "makes"}),
    }
)
STORY_LANGUAGE = Language(
    tale=_STORY_RULES.node("story"),
    summary=_STORY_RULES.node("summary"),
    topics={
        "who": ("hero", "name"),
        "friend": ("friend", "name"),
        "where": ("place", "name"),
        "season": ("season", "name"),
        "mood": ("mood", "name"),
        "plot": ("plot", "name"),
    },
    lengths=(5, 6),
    keywords={"plot": {"find": "found", "help": "helped", "make": "made"}},
)
# --- a language small enough to enumerate ---

_SMALL_RULES = RuleBook(
    {
        "story": "{hero} {went} to the {place}. {scene}",
        "hero": DrawRule("hero", _people("Anna Rosa", "Ben")),
        "went": {"went": 3, "ran": 1},
        "place": DrawRule("place", (entry(name="lake", spot="boat / pier"), entry(name="park", spot="tree / gate"))),
        "scene": {"{mood} {find}": 2, "{find}": 1},
        "mood": "{hero.They} was {feeling}.",
        "feeling": ("sad", "happy"),
        "find": "Near the {spot}, {hero.they} found a {thing}. {end}",
        "spot": _phrasings("place", "spot", 2),
        "thing": DrawRule("thing", _names("kite drum")),
        "end": CaseRule(("place", "name"), {"lake": "{swim}", "park": "{home}"}),
        "swim": {"{home}": 1, "Then {hero.they} swam.": 2},
        "home": "{hero.name} took the {thing.name} home.",
        "summary": "{hero.name} finds a {thing.name}.",
    }
)
SMALL_LANGUAGE = Language(
    tale=_SMALL_RULES.node("story"),
    summary=_SMALL_RULES.node("summary"),
    topics={"who": ("hero", "name"), "where": ("place", "name"), "thing": ("thing", "name")},
    lengths=(3, 3),
)
