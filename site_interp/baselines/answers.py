"""Cross-entropy of whole answers after zero-shot prompts, for methods that change every position of a prompt."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import NotFiniteError
from site_interp.model import Model, pad_left
from site_interp.prompts import Template
from site_interp.tasks import Example

Pair = tuple[list[int], list[int]]  # ids of a prompt, and of its answer with what ends it


def pair_of(model: Model, template: Template, example: Example) -> Pair:
    """Ids of a zero-shot prompt and of its answer, with the text that ends a demonstration."""
    prompt = template.zero_shot(example.input)
    answer = template.answer(example.answer) + template.demonstration_end
    return model.token_ids(prompt), model.answer_ids(prompt, answer)


def parts_of(model: Model, pairs: Sequence[Pair], memory: int) -> list[list[int]]:
    """Places of pairs of similar length that go through the model together within the budget."""
    parts: list[list[int]] = []
    longest = longest_answer = 0
    for place in sorted(range(len(pairs)), key=lambda place: sum(map(len, pairs[place]))):
        longest, longest_answer = sum(map(len, pairs[place])), max(longest_answer, len(pairs[place][1]))
        # Activations of every layer are kept for the backward pass, and attention scores of every pair of tokens.
        wide = model.n_layers * (40 * model.d_model + 3 * model.n_heads * longest)
        row_bytes = 4 * (longest * wide + 4 * (longest_answer + 1) * model.d_vocab)
        if not parts or (len(parts[-1]) + 1) * row_bytes > memory:
            parts.append([])
        parts[-1].append(place)
    return parts


def answer_losses(model: Model, pairs: Sequence[Pair]) -> Float[Tensor, " token"]:
    """Cross-entropy of every answer token of every pair, in nats."""
    ids, mask = pad_left([[*prompt, *answer] for prompt, answer in pairs], model.device)
    longest = max(len(answer) for _, answer in pairs)
    logits, _ = model.forward(ids, mask, n_logits=longest + 1)
    answers = [torch.tensor(answer, device=logits.device) for _, answer in pairs]
    rows = [row[-1 - len(answer) : -1] for row, answer in zip(logits, answers, strict=True)]
    return torch.nn.functional.cross_entropy(torch.cat(rows).float(), torch.cat(answers), reduction="none")


def check_loss(model: Model, loss: float, what: str) -> None:
    """Refuse a loss that is nan or infinite.

    Raises:
        NotFiniteError: Names it.
    """
    if not math.isfinite(loss):
        raise NotFiniteError(
            f"Cannot go on fitting {model.name}: the {what} is not finite in {model.dtype_name}. Lower lr, or load the "
            "model in float32."
        )
