"""Words and patterns from which the sentiment generator makes its sentences."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Mood:
    """What people who liked (or disliked) one kind of thing say about it.

    Args:
        thing: What the review is about.
        parts: Nouns that stand after "the" and before "was".
        qualities: Adjectives that fit every part and carry the opinion.
        effects: Whole clauses that carry the opinion.
        verdicts: Whole clauses about the thing.
    """

    thing: str
    parts: tuple[str, ...]
    qualities: tuple[str, ...]
    effects: tuple[str, ...]
    verdicts: tuple[str, ...]


TEMPLATES = (
    "the {part} was {quality}.",
    "the {part} was {quality} and the {other_part} was {other_quality}.",
    "the {part} was {quality}, and so was the {other_part}.",
    "{quality}, {other_quality}, and simply put: {verdict}.",
    "the {quality} {part} and the {other_quality} {other_part} say it all.",
    "{effect}.",
    "{verdict}.",
    "{effect}, and {verdict}.",
    "{verdict}, because the {part} was {quality}.",
    "we found the {part} {quality} and the {other_part} {other_quality}.",
    "my sister called the {part} {quality}, and I agree.",
    "{effect}; the {part} was {quality}.",
    "thanks to the {quality} {part}, {effect}.",
    "honestly, the {part} was {quality} and {other_quality}.",
    "everyone at our table talked about how {quality} the {part} was.",
    "from the {quality} {part} to the {other_quality} {other_part}, {verdict}.",
)

_PARTS = {
    "film": ("plot", "acting", "ending", "dialogue", "soundtrack", "script", "opening scene", "main story", "last act"),
    "restaurant": ("soup", "service", "bread", "dessert", "fish", "coffee", "sauce", "salad", "steak", "pasta"),
    "hotel": ("room", "bed", "breakfast", "bathroom", "pool", "lobby", "view", "welcome", "service"),
    "book": ("plot", "ending", "writing", "first chapter", "mystery", "love story", "dialogue", "final twist"),
    "phone": ("screen", "battery", "camera", "sound", "design", "speaker", "keyboard", "charger"),
    "concert": ("singer", "sound", "band", "light show", "opening song", "encore", "drummer", "choir"),
}

_GOOD_QUALITIES = {
    "film": ("wonderful", "gripping", "brilliant", "moving", "superb", "charming", "clever", "stunning", "delightful"),
    "restaurant": ("excellent", "wonderful", "perfect", "lovely", "fantastic", "outstanding", "superb", "great"),
    "hotel": ("lovely", "beautiful", "perfect", "wonderful", "excellent", "delightful", "fantastic", "splendid"),
    "book": ("brilliant", "beautiful", "gripping", "clever", "wonderful", "thrilling", "touching", "masterful"),
    "phone": ("excellent", "great", "superb", "fantastic", "impressive", "perfect", "amazing", "reliable"),
    "concert": ("amazing", "brilliant", "magical", "fantastic", "superb", "terrific", "wonderful", "unforgettable"),
}

_BAD_QUALITIES = {
    "film": ("dull", "lifeless", "awful", "clumsy", "boring", "terrible", "tedious", "weak", "dreadful", "silly"),
    "restaurant": ("awful", "terrible", "disappointing", "dreadful", "horrible", "poor", "bad", "unpleasant"),
    "hotel": ("dreadful", "horrible", "awful", "shabby", "depressing", "terrible", "disappointing", "miserable"),
    "book": ("boring", "tedious", "clumsy", "lifeless", "dull", "awful", "pointless", "ridiculous"),
    "phone": ("useless", "terrible", "poor", "awful", "disappointing", "faulty", "horrible", "unreliable"),
    "concert": ("awful", "terrible", "dull", "disappointing", "boring", "dreadful", "lifeless", "horrible"),
}

_GOOD_EFFECTS = {
    "film": (
        "I smiled from the first minute to the last",
        "the whole cinema clapped at the end",
        "I laughed until my sides hurt",
        "two hours flew by like ten minutes",
        "my kids asked to watch it again right away",
    ),
    "restaurant": (
        "we cleaned our plates and asked for more",
        "I am still dreaming of that meal",
        "every bite made us happy",
        "the waiter treated us like family",
        "we have already booked a table for next week",
    ),
    "hotel": (
        "I slept better than I do at home",
        "we did not want to leave",
        "the staff made us feel truly welcome",
        "everything was spotless and calm",
        "our stay was pure joy",
    ),
    "book": (
        "I could not put it down",
        "I stayed up all night to finish it and have no regrets",
        "it warmed my heart on every page",
        "I bought three copies as gifts for friends",
        "I was sad only because it had to end",
    ),
    "phone": (
        "it does all I hoped for and more",
        "it lasts for days without a charge",
        "I have not had a single problem with it",
        "it works like a dream",
        "my whole family wants the same one now",
    ),
    "concert": (
        "we danced all night long",
        "the crowd cheered for ten minutes",
        "I went home glowing with happiness",
        "it gave me goosebumps in the best way",
        "nobody wanted the night to end",
    ),
}

_BAD_EFFECTS = {
    "film": (
        "I nearly fell asleep halfway through",
        "people walked out before the end",
        "I checked my watch every five minutes",
        "nobody laughed at a single joke",
        "I want those two hours of my life back",
    ),
    "restaurant": (
        "we left hungry and angry",
        "I felt sick for the rest of the day",
        "we waited an hour and got the wrong order",
        "the waiter was rude to us all evening",
        "half of the food went back to the kitchen",
    ),
    "hotel": (
        "I could not sleep because of the noise",
        "we packed our bags after one night",
        "the staff ignored every complaint",
        "everything was dirty and broken",
        "our stay was a nightmare",
    ),
    "book": (
        "I gave up after fifty pages",
        "I had to force myself to finish it",
        "I threw it in the bin",
        "I kept falling asleep over it",
        "not one character felt real to me",
    ),
    "phone": (
        "it broke after two days",
        "it crashes every time I make a call",
        "I sent it back and asked for a refund",
        "it gets so hot that I cannot hold it",
        "nothing about it works as promised",
    ),
    "concert": (
        "half of the crowd left early",
        "we could hardly hear a thing and got a headache",
        "I went home bored and annoyed",
        "they sang out of tune all night",
        "people booed at the end",
    ),
}

_GOOD_VERDICTS = (
    "this {thing} is one of the best I know",
    "I would recommend this {thing} to anyone",
    "this {thing} deserves all the praise it gets",
    "I loved this {thing}",
    "this {thing} is worth every penny",
    "I could not be happier with this {thing}",
    "this {thing} is a real treasure",
)

_BAD_VERDICTS = (
    "this {thing} is one of the worst I know",
    "I would warn anyone against this {thing}",
    "this {thing} deserves none of the praise it gets",
    "I hated this {thing}",
    "this {thing} is a waste of money",
    "I could not be more disappointed with this {thing}",
    "this {thing} is a complete failure",
)


def _moods(
    qualities: Mapping[str, tuple[str, ...]], effects: Mapping[str, tuple[str, ...]], verdicts: tuple[str, ...]
) -> tuple[Mood, ...]:
    return tuple(
        Mood(thing, parts, qualities[thing], effects[thing], tuple(verdict.format(thing=thing) for verdict in verdicts))
        for thing, parts in _PARTS.items()
    )


POSITIVE = _moods(_GOOD_QUALITIES, _GOOD_EFFECTS, _GOOD_VERDICTS)
NEGATIVE = _moods(_BAD_QUALITIES, _BAD_EFFECTS, _BAD_VERDICTS)
