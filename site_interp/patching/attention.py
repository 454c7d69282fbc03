"""What heads attend to: induction and previous-token scores, and the parts of a prompt seen from its last token."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model import Model, token_spans
from site_interp.progress import Advance, advancing
from site_interp.prompts import Template
from site_interp.tasks import Example, Labelled, Task, sub_seed

ROLES = ("first token", "demonstration input", "demonstration answer", "query input", "format", "itself")
"""Parts of a few-shot prompt. `format` is what the template adds; the first token is apart: many heads rest there."""


@dataclass(frozen=True)
class HeadScores:
    """Attention of each head on repeated random tokens, shares of 1.

    Args:
        induction: To the token after the previous occurrence of the current one (Olsson et al., 2022).
        previous: To the token before.
    """

    induction: Float[Tensor, "layer head"]
    previous: Float[Tensor, "layer head"]


@torch.no_grad()
def head_scores(model: Model, *, length: int = 50, n_rows: int = 8, seed: int = 0) -> HeadScores:
    """Induction and previous-token scores of every head, from random tokens shown twice.

    Args:
        model: Left as it is.
        length: Tokens of the part that is repeated.
        n_rows: Different random sequences.
        seed: Seed of the tokens.

    Raises:
        UserError: A length that does not fit twice in the context.
    """
    if not 2 <= length <= (model.n_ctx - 1) // 2:
        raise UserError(f"Cannot show {length} tokens twice to {model.name}: its context holds {model.n_ctx}.")
    chooser = random.Random(sub_seed(seed, "induction tokens", ""))
    special = set(model.tokenizer.all_special_ids)
    ordinary = [token for token in range(len(model.tokenizer)) if token not in special and token < model.d_vocab]
    parts = torch.tensor([[chooser.choice(ordinary) for _ in range(length)] for _ in range(n_rows)])
    bos = model.tokenizer.bos_token_id
    first = torch.full((n_rows, 1), ordinary[0] if bos is None else bos)
    ids = torch.cat([first, parts, parts], dim=1).to(model.device)
    queries = torch.arange(length + 1, 2 * length, device=model.device)  # second showing, but its first token
    induction, previous = torch.zeros(2, model.n_layers, model.n_heads)

    def score(pattern: Tensor, layer: int) -> None:
        seen = pattern.float()
        induction[layer] = seen[:, :, queries, queries - length + 1].mean(dim=(0, 2)).cpu()
        previous[layer] = seen[:, :, queries, queries - 1].mean(dim=(0, 2)).cpu()

    hooks = [(model.hook_pattern(layer), lambda p, layer=layer: score(p, layer)) for layer in range(model.n_layers)]
    with model.hooked(hooks):
        model.forward(ids, torch.ones_like(ids), n_logits=1)
    return HeadScores(induction, previous)


@torch.no_grad()
def attention_by_role(
    model: Model,
    task: Task | Labelled,
    template: Template,
    *,
    n_shots: int = 10,
    n_prompts: int = 20,
    seed: int = 0,
    progress: Advance | None = None,
) -> dict[str, Float[Tensor, "layer head"]]:
    """Where each head looks from the last token of few-shot prompts: its share for each role, which add up to 1.

    Args:
        model: Left as it is.
        task: Demonstrations and queries come from its training split.
        template: How examples become text.
        n_shots, n_prompts: Demonstrations in each of so many prompts.
        seed: Seed of the draw.
        progress: Called with the number of prompts done; by default a bar is shown.

    Raises:
        UserError: Too few training examples, or a tokenizer that does not say what its tokens stand for.
    """
    labelled = task if isinstance(task, Labelled) else Labelled(task)
    if labelled.n_train < n_shots + 1:
        raise UserError(
            f"Cannot write prompts of {n_shots} shots for '{labelled.task}': it has {labelled.n_train} training "
            "examples. Lower n_shots."
        )
    chooser = random.Random(sub_seed(seed, "attention prompts", labelled.task))
    shares = torch.zeros(len(ROLES), model.n_layers, model.n_heads)
    with advancing(n_prompts, "reading attention", progress) as advance:
        for _ in range(n_prompts):
            *shown, query = chooser.sample(range(labelled.n_train), n_shots + 1)
            text, parts = _roles(template, labelled.train(shown), labelled.train_input(query))
            shares += _seen_from_last(model, text, parts) / n_prompts
            advance(1)
    return dict(zip(ROLES, shares, strict=True))


def _roles(template: Template, demonstrations: Sequence[Example], query: str) -> tuple[str, list[str]]:
    """A few-shot prompt, and the role of each of its characters."""
    pieces = []
    for example in demonstrations:
        answer = template.answer(example.answer)
        pieces += [
            (template.input_prefix, "format"),
            (example.input, "demonstration input"),
            (template.answer_cue, "format"),
            (answer, "demonstration answer"),
            (template.demonstration_end, "format"),
        ]
    pieces += [(template.input_prefix, "format"), (query, "query input"), (template.answer_cue, "format")]
    text = "".join(piece for piece, _ in pieces)
    return text, [role for piece, role in pieces for _ in piece]


def _seen_from_last(model: Model, text: str, parts: Sequence[str]) -> Float[Tensor, "role layer head"]:
    """Attention of one prompt's last token, summed by role; a token has the role of its last character."""
    ids, spans = token_spans(model, text)
    roles = ["first token" if not place else parts[end - 1] for place, (_, end) in enumerate(spans)]
    roles[-1] = "itself"
    belongs = torch.tensor([[role == wanted for role in roles] for wanted in ROLES], dtype=torch.float32)
    shares = torch.zeros(len(ROLES), model.n_layers, model.n_heads)

    def read(pattern: Tensor, layer: int) -> None:
        shares[:, layer] = belongs @ pattern[0, :, -1].float().cpu().T

    hooks = [(model.hook_pattern(layer), lambda p, layer=layer: read(p, layer)) for layer in range(model.n_layers)]
    with model.hooked(hooks):
        given: Int[Tensor, "1 pos"] = ids[None].to(model.device)
        model.forward(given, torch.ones_like(given), n_logits=1)
    return shares
