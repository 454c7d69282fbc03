"""Seeded generators of bundled tasks: rows made from a word list and rules, the same on every machine."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, get_args

from site_interp.tasks.phrases import NEGATIVE, POSITIVE, TEMPLATES, Mood
from site_interp.tasks.task import Row, sub_seed
from site_interp.tasks.words import KINDS, common_words

N_LISTS = 600
N_SENTENCES = 500

Place = Literal["first", "middle", "last"]
End = Literal["first", "last"]
PLACES: tuple[Place, ...] = get_args(Place)
ENDS: tuple[End, ...] = get_args(End)


def _words(text: str) -> list[str]:
    return text.split()


DAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
MONTHS = _words("january february march april may june july august september october november december")
UNITS = _words("one two three four five six seven eight nine")
TEENS = _words("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
ORDINALS = _words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth")


def _rng(task: str) -> random.Random:
    return random.Random(sub_seed(0, "generate", f"bundled/{task}"))


def each_word(answer: Callable[[str], str], shown: Callable[[str], str]) -> list[Row]:
    """Every common word as `shown` writes it -> what `answer` makes of it.

    Example:
        >>> each_word(str.upper, shown=str.lower)[0]
        ('apple', ('APPLE',))
    """
    return [(shown(word), (answer(word),)) for word in common_words()]


def word_length() -> list[Row]:
    """Every common word and every word of a kind -> its number of letters, in digits."""
    words = dict.fromkeys((*common_words(), *(word for kind in KINDS.values() for word in kind)))
    return [(word, (str(len(word)),)) for word in words]


def choose(place: Place, n: int) -> list[Row]:
    """`n` different common words, separated by commas -> the one that stands at `place`.

    Args:
        place: Where the answer stands.
        n: Words in a list; odd, so that one is in the middle.
    """
    rng = _rng(f"choose_{place}_of_{n}")
    position = {"first": 0, "middle": n // 2, "last": -1}[place]
    words = common_words()
    lists = dict.fromkeys(tuple(rng.sample(words, n)) for _ in range(N_LISTS))
    return [(", ".join(chosen), (chosen[position],)) for chosen in lists]


def alphabetically(end: End, n: int) -> list[Row]:
    """`n` different common words, separated by commas -> the one at that end of their alphabetical order.

    The answer stands equally often at each position. In every second list another word has the answer's first letter,
    so that the letters after it decide.
    """
    rng = _rng(f"alphabetically_{end}_{n}")
    words = common_words()
    rows: dict[str, str] = {}
    while len(rows) < N_LISTS:
        answer, *others = sorted(rng.sample(words, n), reverse=end == "last")
        if (others[0][0] == answer[0]) == (len(rows) % 2 == 1):
            rng.shuffle(others)
            rows.setdefault(_listing(answer, others, len(rows) % n), answer)
    return [(text, (answer,)) for text, answer in rows.items()]


def odd_one_out(kind: str, other: str, n: int) -> list[Row]:
    """A word of one kind among `n - 1` different words of another -> that word, equally often at each position.

    Args:
        kind: Key of `KINDS`: what the answer is.
        other: Key of `KINDS`: what all other words are.
        n: Words in a list.
    """
    rng = _rng(f"{kind}_v_{other}_{n}")
    rows: dict[str, str] = {}
    while len(rows) < N_LISTS:
        answer = rng.choice(KINDS[kind])
        rows.setdefault(_listing(answer, rng.sample(KINDS[other], n - 1), len(rows) % n), answer)
    return [(text, (answer,)) for text, answer in rows.items()]


def _listing(answer: str, others: Sequence[str], position: int) -> str:
    return ", ".join([*others[:position], answer, *others[position:]])


def next_item() -> list[Row]:
    """An item of a well-known series -> the one after it; days and months go round, the other series end.

    No item stands in two series: single Roman digits, which are letters too, are answers only.
    """
    return [(item, (after,)) for item, after in _neighbours() if _is_clear(item)]


def prev_item() -> list[Row]:
    """An item of a well-known series -> the one before it: `next_item` read backwards."""
    return [(item, (before,)) for before, item in _neighbours() if _is_clear(item)]


def _neighbours() -> list[tuple[str, str]]:
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
    return pairs + [pair for line in lines for pair in pairwise(line)]


def _is_clear(item: str) -> bool:
    """Whether the item is not a Roman digit, which could be a letter."""
    return len(item) > 1 or item not in "IVXLCDM"


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
    rng = _rng("sentiment")
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
