"""One score per example, from the text a model wrote; averaging is left to `comparison`."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

Metric = Literal["first_token", "prefix_match", "strict_match", "answer_log_prob", "choice_match"]
"""Names under which scores are stored: three shares of right answers (0 or 1 per example), then nats per answer, then,
for tasks of multiple choice, whether a right option is the likeliest."""

METRICS: tuple[Metric, ...] = get_args(Metric)

QUOTES = "\"'`“”‘’«»"
SENTENCE_ENDS = ".,;:!?"


def processed(text: str, case_sensitive: bool) -> str:
    """A text as prefix match compares it.

    Cut at the first newline, then at the first "(", stripped, "St." spelt "Saint", lower-cased unless case counts.

    Args:
        text: What the model wrote, or an answer.
        case_sensitive: Whether upper and lower case stay as written.

    Example:
        >>> processed(" St. Louis (Missouri) is\\nQ:", case_sensitive=False)
        'saint louis'
    """
    shown = text.split("\n", 1)[0].split("(", 1)[0].strip().replace("St.", "Saint")
    return shown if case_sensitive else shown.lower()


def prefix_match(output: str, answers: Sequence[str], case_sensitive: bool) -> float:
    """Whether the output begins with one of the answers, both `processed`: the score the SITE paper reports.

    A lenient score: "Sail" is right for "S", and an output that repeats the input is right wherever the answer
    begins the input. An answer that processes to nothing, such as "(A)", is never matched.

    Args:
        output: Text the model wrote after the prompt.
        answers: Every right answer; one of them is enough.
        case_sensitive: Whether "rome" is wrong for "Rome".

    Returns:
        1.0 if right, else 0.0.
    """
    shown = processed(output, case_sensitive)
    targets = (processed(answer, case_sensitive) for answer in answers)
    return float(any(target and shown.startswith(target) for target in targets))


def strict_match(output: str, answers: Sequence[str], case_sensitive: bool) -> float:
    """Whether the first line of the output is one of the answers and nothing else.

    Both sides are cut at the first newline and stripped of spaces and quotes at both ends and of `. , ; : ! ?` at
    the right end. A text made of such signs only is kept as it stands; an empty answer is never matched.

    Args:
        output: Text the model wrote after the prompt.
        answers: Every right answer; one of them is enough.
        case_sensitive: Whether "rome" is wrong for "Rome".

    Returns:
        1.0 if right, else 0.0.

    Example:
        >>> strict_match(' "Rome."\\nQ: Spain', ["Rome"], case_sensitive=True)
        1.0
    """
    shown = _bare(output, case_sensitive)
    targets = (_bare(answer, case_sensitive) for answer in answers)
    return float(any(target and shown == target for target in targets))


def choice_match(log_probs: Mapping[str, float], answers: Sequence[str]) -> float:
    """Whether a right option is likelier than every other one, as the model rates whole options.

    Log-probabilities are summed over an option's tokens and not divided by their number. A tie with a wrong option is
    no match.

    Args:
        log_probs: Nats of each option.
        answers: Every right answer; one that is no option is never matched.

    Returns:
        1.0 if right, else 0.0.

    Example:
        >>> choice_match({"(A)": -2.5, "(B)": -1.0}, ["(B)"])
        1.0
    """
    right = max((value for option, value in log_probs.items() if option in answers), default=-math.inf)
    wrong = max((value for option, value in log_probs.items() if option not in answers), default=-math.inf)
    return float(right > wrong)


def _bare(text: str, case_sensitive: bool) -> str:
    """The first line without outer quotes and closing punctuation."""
    line = text.split("\n", 1)[0].strip()
    bare = line.rstrip(SENTENCE_ENDS + QUOTES + " \t\r").lstrip(QUOTES + " \t") or line
    return bare if case_sensitive else bare.lower()
