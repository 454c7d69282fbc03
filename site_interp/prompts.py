"""Text of prompts: the template, and seeded drawing of few-shot and zero-shot prompts. Knows no tokens and no model."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from site_interp.errors import UserError, did_you_mean
from site_interp.tasks import Example, Labelled, sub_seed


@dataclass(frozen=True)
class Template:
    r"""How examples become text: `Q: hot\nA: cold\n\n` for a demonstration, `Q: early\nA:` for a query.

    Args:
        name: What `--template` calls it.
        input_prefix: Text before an input.
        answer_cue: Text after an input; a prompt ends with it, without trailing space.
        answer_prefix: Text before an answer; left out for all-digit answers, whose first token would be a bare space
            (SITE code, preprocess.py).
        demonstration_end: Text after a demonstration's answer.
        stop: Generation ends, and the answer is cut, where this text appears.

    Raises:
        UserError: An empty stop text, or an answer cue that is empty or ends in a space.

    Example:
        >>> QA.few_shot([Example("hot", ("cold",))], "early")
        'Q: hot\nA: cold\n\nQ: early\nA:'
    """

    name: str = "qa"
    input_prefix: str = "Q: "
    answer_cue: str = "\nA:"
    answer_prefix: str = " "
    demonstration_end: str = "\n\n"
    stop: str = "\n"

    def __post_init__(self) -> None:
        if not self.stop:
            raise UserError(
                "Cannot use a template whose stop text is empty: no answer would end. Give a line break, say."
            )
        if not self.answer_cue or self.answer_cue != self.answer_cue.rstrip(" "):
            raise UserError(
                f"Cannot use a template whose answer cue is {self.answer_cue!r}: it must not be empty nor end in "
                "a space, or the answer's first token is a bare space. Move the space to answer_prefix."
            )

    def zero_shot(self, text: str) -> str:
        """The prompt for one input without demonstrations."""
        return f"{self.input_prefix}{text}{self.answer_cue}"

    def answer(self, answer: str) -> str:
        """The answer as it stands after the cue."""
        return answer if answer.isdecimal() else f"{self.answer_prefix}{answer}"

    def few_shot(self, demonstrations: Sequence[Example], text: str) -> str:
        """The prompt for one input after demonstrations, in the order given."""
        shown = [self.zero_shot(e.input) + self.answer(e.answer) + self.demonstration_end for e in demonstrations]
        return "".join(shown) + self.zero_shot(text)

    def to_dict(self) -> dict[str, str]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Template":
        """Read a template back from JSON values.

        Raises:
            UserError: Unknown or missing fields, values that are not text, or an empty answer cue.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or not set(values) <= names:
            unknown = sorted(set(values) - names) if isinstance(values, dict) else [type(values).__name__]
            raise UserError(
                f"Cannot read a prompt template: it has {unknown}, but may have only {sorted(names)}. Mend it."
            )
        if not all(isinstance(value, str) for value in values.values()):
            raise UserError("Cannot read a prompt template: every field must be text. Put the values in quotes.")
        return cls(**values)


QA = Template()
CHAT = Template(
    name="chat",
    input_prefix="<|im_start|>user\n",
    answer_cue="<|im_end|>\n<|im_start|>assistant\n",
    answer_prefix="",
    demonstration_end="<|im_end|>\n",
    stop="\n",
)


def load_template(name: str) -> Template:
    """The template of a name: `qa`, `chat` (ChatML), or a JSON file with the fields of `Template`.

    Raises:
        UserError: Neither a known name nor a readable file.
    """
    if name in (QA.name, CHAT.name):
        return QA if name == QA.name else CHAT
    path = Path(name)
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError) or "\0" in name:
            raise UserError(
                f"Cannot find the template {name!r}: it is neither 'qa' nor 'chat' nor a JSON file."
                f"{did_you_mean(name, (QA.name, CHAT.name))}"
            ) from None
        raise UserError(
            f"Cannot read the template file {name}: it is not valid JSON ({error}). Mend the file."
        ) from None
    return Template.from_dict({"name": path.stem, **values} if isinstance(values, dict) else values)


def draw_embedding_prompts(
    labelled: Labelled, template: Template, *, n_prompts: int, n_shots: int, seed: int
) -> tuple[str, ...]:
    """Few-shot prompts for a task embedding, each of `n_shots` demonstrations and one more input as its query.

    Drawn from the training split, with replacement across prompts and without inside a prompt (SITE, section 1.3 of
    its code). The query's answer is not looked at.

    Args:
        labelled: Where the answers come from; counts those shown.
        template: How examples become text.
        n_prompts: M, the number of prompts.
        n_shots: N, demonstrations in each.
        seed: Together with the task's name it decides the draw.

    Raises:
        UserError: Fewer than `n_shots` + 1 training examples, or no prompt asked for.
    """
    if n_prompts < 1:
        raise UserError(f"Cannot draw {n_prompts} embedding prompts: give n_prompts of 1 or more.")
    _check_shots(labelled, n_shots, "an embedding prompt")
    chooser = random.Random(sub_seed(seed, "embedding prompts", labelled.task))
    prompts = []
    for _ in range(n_prompts):
        *shown, query = chooser.sample(range(labelled.n_train), n_shots + 1)
        prompts.append(template.few_shot(labelled.train(shown), labelled.train_input(query)))
    return tuple(prompts)


def draw_icl_prompts(
    labelled: Labelled,
    template: Template,
    inputs: Sequence[str],
    *,
    n_shots: int,
    seed: int,
    shuffle_labels: bool = False,
) -> tuple[str, ...]:
    """One few-shot prompt per input, with fresh demonstrations for each and never the input itself.

    A prompt depends on the seed, the task and its own input, not on which other inputs are asked.

    Args:
        labelled: Where the answers come from; counts those shown.
        template: How examples become text.
        inputs: The queries.
        n_shots: Demonstrations in each prompt.
        seed: Decides the draw.
        shuffle_labels: Give the demonstrations each other's answers: the same ones are shown, in another order.

    Raises:
        UserError: Fewer training examples than `n_shots`, and one more where queries stand among them.
    """
    own = {labelled.train_input(index) for index in range(labelled.n_train)}
    _check_shots(labelled, n_shots, "a prompt", spare=not own.isdisjoint(inputs))
    prompts = []
    for text in inputs:
        chooser = random.Random(sub_seed(seed, f"demonstrations for {text}", labelled.task))
        drawn = chooser.sample(range(labelled.n_train), min(n_shots + 1, labelled.n_train))
        shown = [index for index in drawn if labelled.train_input(index) != text][:n_shots]
        demonstrations = labelled.train(shown)
        if shuffle_labels:
            answers = [example.answers for example in demonstrations]
            chooser.shuffle(answers)
            demonstrations = tuple(Example(e.input, a) for e, a in zip(demonstrations, answers, strict=True))
        prompts.append(template.few_shot(demonstrations, text))
    return tuple(prompts)


def _check_shots(labelled: Labelled, n_shots: int, what: str, *, spare: bool = True) -> None:
    """Refuse more demonstrations than there are, one spared for the query where that is a training example."""
    if n_shots < 0:
        raise UserError(f"Cannot draw {what} with {n_shots} demonstrations: give n_shots of 0 or more.")
    if labelled.n_train < n_shots + spare:
        query = f" ({n_shots} shots + 1 query)" if spare else ""
        needed = f"{n_shots + spare} distinct training examples{query}"
        raise UserError(
            f"Cannot draw {what} of {n_shots} shots from task '{labelled.task}': it needs {needed}, found "
            f"{labelled.n_train}. Lower n_shots."
        )
