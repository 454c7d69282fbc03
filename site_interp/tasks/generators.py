"""Seeded generators of bundled tasks: rows made from a word list and rules, the same on every machine."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from site_interp.tasks.phrases import NEGATIVE, POSITIVE, TEMPLATES, Mood
from site_interp.tasks.task import Row, sub_seed

N_TRIPLES = 600
N_SENTENCES = 500

WORDS_FILE = Path(__file__).parent / "bundled" / "words.txt"


def _words(text: str) -> list[str]:
    return text.split()


DAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
MONTHS = _words("january february march april may june july august september october november december")
UNITS = _words("one two three four five six seven eight nine")
TEENS = _words("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
ORDINALS = _words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth")


def common_words() -> tuple[str, ...]:
    """The bundled list of common lower-case words, each once."""
    lines = WORDS_FILE.read_text(encoding="utf-8").splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in _words(line))


def capitalize() -> list[Row]:
    """Every common word -> the same word with its first letter in upper case."""
    return [(word, (word.capitalize(),)) for word in common_words()]


def choose_first_of_3() -> list[Row]:
    """Three different common words, separated by commas -> the first of them."""
    rng = random.Random(sub_seed(0, "generate", "bundled/choose_first_of_3"))
    words = common_words()
    triples = dict.fromkeys(tuple(rng.sample(words, 3)) for _ in range(N_TRIPLES))
    return [(", ".join(triple), (triple[0],)) for triple in triples]


def next_item() -> list[Row]:
    """An item of a well-known series -> the one after it; days and months go round, the other series end.

    No item stands in two series: single Roman digits, which are letters too, are answers only.
    """
    cycles = [DAYS, [day[:3] for day in DAYS], MONTHS]
    lines = [
        [str(number) for number in range(1, 102)],
        [number_word(number) for number in range(1, 82)],
        [chr(code) for code in range(ord("a"), ord("z") + 1)],
        ORDINALS,
        [ordinal_digits(number) for number in range(1, 42)],
        [roman(number) for number in range(1, 51)],
    ]
    pairs = [pair for cycle in cycles for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
    pairs += [pair for line in lines for pair in pairwise(line)]
    return [(item, (after,)) for item, after in pairs if len(item) > 1 or item not in "IVXLCDM"]


def number_word(number: int) -> str:
    """A number from 1 to 99 in words.

    Example:
        >>> number_word(7), number_word(40), number_word(65)
        ('seven', 'forty', 'sixty-five')
    """
    if number < 10:
        return UNITS[number - 1]
    if number < 20:
        return TEENS[number - 10]
    tens, unit = divmod(number, 10)
    return TENS[tens - 2] + (f"-{UNITS[unit - 1]}" if unit else "")


def ordinal_digits(number: int) -> str:
    """A number below 100 as an ordinal in digits.

    Example:
        >>> ordinal_digits(2), ordinal_digits(12), ordinal_digits(23)
        ('2nd', '12th', '23rd')
    """
    if 10 <= number <= 20:
        return f"{number}th"
    return str(number) + {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def roman(number: int) -> str:
    """A number from 1 to 89 as a Roman numeral in upper case.

    Example:
        >>> roman(4), roman(19), roman(42)
        ('IV', 'XIX', 'XLII')
    """
    numeral = ""
    for value, letters in ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        count, number = divmod(number, value)
        numeral += letters * count
    return numeral


def sentiment() -> list[Row]:
    """A sentence as from a review of a film, meal, book or stay -> positive or negative, half of each."""
    rng = random.Random(sub_seed(0, "generate", "bundled/sentiment"))
    sentences: dict[str, str] = {}
    labels = ("positive", "negative")
    while len(sentences) < N_SENTENCES:
        label = labels[len(sentences) % 2]
        sentences.setdefault(_sentence(rng, POSITIVE if label == "positive" else NEGATIVE), label)
    return [(sentence, (label,)) for sentence, label in sentences.items()]


def _sentence(rng: random.Random, moods: Sequence[Mood]) -> str:
    mood = rng.choice(moods)
    template = rng.choice(TEMPLATES)
    part, other_part = rng.sample(mood.parts, 2)
    quality, other_quality = rng.sample(mood.qualities, 2)
    sentence = template.format(
        thing=mood.thing,
        part=part,
        other_part=other_part,
        quality=quality,
        other_quality=other_quality,
        effect=rng.choice(mood.effects),
        verdict=rng.choice(mood.verdicts),
    )
    return sentence[0].upper() + sentence[1:]
