"""What each head does alone: the sweep of one-hots over all heads, and its first-order estimate.

Effects are changes of the log-probability of the first answer token, in nats: above 0 the head makes it more likely.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.branches import score_branches
from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.injection import Intervention, injected_logits
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, Prefixes, check_finite, iterate_prefixes
from site_interp.progress import Advance, advancing
from site_interp.prompts import draw_icl_prompts
from site_interp.tasks import Labelled, Task


@dataclass(frozen=True)
class HeadEffects:
    """The effect of each head on each prompt.

    Args:
        values: Change of the log-probability of the first answer token, in nats.
        clean: That log-probability without any change.
        kind: Which question: `zero_shot`, `shuffled` or `attribution`.
        task: Name of the task.
        seed: Seed of the prompts.
    """

    values: Float[Tensor, "prompt layer head"]
    clean: Float[Tensor, " prompt"]
    kind: str
    task: str
    seed: int

    def __repr__(self) -> str:
        n_prompts, n_layers, n_heads = self.values.shape
        return f"HeadEffects({self.kind}, {self.task}: {n_prompts} prompts, {n_layers} layers of {n_heads} heads)"

    @property
    def mean(self) -> Float[Tensor, "layer head"]:
        """Mean over the prompts."""
        return self.values.mean(dim=0)


@dataclass(frozen=True)
class Queries:
    """Prompts with their first answer tokens.

    Args:
        prompts: Each ends in the token whose heads are changed.
        answers: Token id of each prompt's answer, the first where it has several.
    """

    prompts: tuple[str, ...]
    answers: tuple[int, ...]


def draw_queries(
    model: Model, labelled: Labelled, embedding: TaskEmbedding, *, kind: str, n_prompts: int, seed: int
) -> Queries:
    """Prompts of validation inputs: zero-shot, or few-shot with the labels of the demonstrations shuffled among them.

    Raises:
        UserError: Fewer validation or training examples than needed, or an unknown kind.
    """
    if kind not in ("zero_shot", "shuffled"):
        raise UserError(f"Cannot draw prompts of the kind {kind!r}: there are zero_shot and shuffled.")
    if not 1 <= n_prompts <= labelled.n_valid:
        raise UserError(
            f"Cannot draw {n_prompts} prompts for task '{labelled.task}': it has {labelled.n_valid} validation "
            "examples. Give a number from 1 to that."
        )
    template = embedding.template
    examples = labelled.valid(range(n_prompts))
    inputs = [example.input for example in examples]
    if kind == "zero_shot":
        prompts = tuple(template.zero_shot(text) for text in inputs)
    else:
        prompts = draw_icl_prompts(
            labelled, template, inputs, n_shots=embedding.n_shots, seed=seed, shuffle_labels=True
        )
    answers = tuple(
        model.answer_ids(prompt, template.answer(example.answer))[0]
        for prompt, example in zip(prompts, examples, strict=True)
    )
    return Queries(prompts, answers)


def sweep_heads(
    model: Model,
    task: Task | Labelled,
    embedding: TaskEmbedding,
    *,
    kind: str = "zero_shot",
    n_prompts: int = 25,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> HeadEffects:
    """The indirect effect of every head: its output alone is replaced by that of the task embedding.

        effect[l, h] = log p(answer | z[l, h] <- t[l, h]) - log p(answer)

    `zero_shot` writes what heads put out after demonstrations into prompts without any; `shuffled` writes it into
    few-shot prompts whose demonstrations have each other's labels, as the causal indirect effect of function vectors
    (Todd et al., 2024, section 2.3; here in nats instead of probability).

    Cost: for each prompt one token for each head, from that head's layer on.

    Args:
        model: Left as it is.
        task: Inputs come from its validation split, demonstrations from its training split.
        embedding: What is written; its template and number of demonstrations make the prompts.
        kind: `zero_shot` or `shuffled`.
        n_prompts: Validation inputs.
        seed: Seed of the demonstrations.
        memory: Budget in bytes, beside the model.
        progress: Called with the number of prompts done; by default a bar is shown.

    Returns:
        Effects [prompt layer head] in nats; above 0 the head makes the answer more likely.

    Raises:
        UserError: Too few examples, an unknown kind, an embedding of another model or split, or values that are not
            finite.

    Example:
        effects = sweep_heads(model, task, embedding, kind="shuffled")
        plots.effect_map(effects.mean)
    """
    labelled = task if isinstance(task, Labelled) else Labelled(task)
    embedding.check_model(model)
    embedding.check_split(labelled, "Cannot read the effects of heads on")
    queries = draw_queries(model, labelled, embedding, kind=kind, n_prompts=n_prompts, seed=seed)
    values, clean = sweep_prompts(
        model, queries.prompts, queries.answers, embedding.mean[None], memory=memory, progress=progress
    )
    return HeadEffects(values, clean, kind, labelled.task, seed)


def sweep_prompts(
    model: Model,
    prompts: Sequence[str],
    answers: Sequence[int],
    target: Float[Tensor, "#prompt layer head d_head"],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> tuple[Float[Tensor, "prompt layer head"], Float[Tensor, " prompt"]]:
    """The sweep on prompts of one's own: effects of replacing each head by the target, and the clean log-probability.

    Args:
        model: Left as it is.
        prompts: Each ends in the token whose heads are replaced.
        answers: Token id of each prompt's answer.
        target: What to write, one for all prompts or one for each (z of another prompt, a mean, zeros).
        memory: Budget in bytes, beside the model.
        progress: Called with the number of prompts done; by default a bar is shown.
    """
    heads = (model.n_layers, model.n_heads)
    one_hots = torch.eye(heads[0] * heads[1]).view(-1, *heads)
    values, clean = torch.zeros(len(prompts), *heads), torch.zeros(len(prompts))
    tokens = torch.tensor(answers)
    with advancing(len(prompts), "sweeping heads", progress) as advance:
        for prefixes in iterate_prefixes(model, prompts, memory=memory // 4, max_rows=SWEPT):
            rows = prefixes.rows.cpu()
            own = target if len(target) == 1 else target[rows]
            found = score_branches(prefixes, tokens[rows].to(model.device), own, one_hots, memory=memory // 2)
            values[rows] = found.effects.view(-1, *heads)
            clean[rows] = found.clean
            advance(len(prefixes))
    return values, clean


SWEPT = 8  # prompts swept together: with 270 heads each the arithmetic long outweighs reading the weights


def attribute_heads(
    model: Model,
    task: Task | Labelled,
    embedding: TaskEmbedding,
    *,
    kind: str = "zero_shot",
    n_prompts: int = 25,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> HeadEffects:
    """First-order estimate of the sweep, from one backward for all heads.

        d log p(answer) / d alpha[l, h] at alpha = 0  =  sum over d of (t[l, h] - z[l, h]) * d log p / d z[l, h]

    Args:
        model, task, embedding, kind, n_prompts, seed, memory, progress: As in `sweep_heads`.

    Returns:
        Estimated effects [prompt layer head] in nats.

    Raises:
        UserError: As in `sweep_heads`.
    """
    labelled = task if isinstance(task, Labelled) else Labelled(task)
    embedding.check_model(model)
    embedding.check_split(labelled, "Cannot read the effects of heads on")
    queries = draw_queries(model, labelled, embedding, kind=kind, n_prompts=n_prompts, seed=seed)
    values = torch.zeros(n_prompts, model.n_layers, model.n_heads)
    clean = torch.zeros(n_prompts)
    tokens = torch.tensor(queries.answers)
    with advancing(n_prompts, "attributing", progress) as advance, model.frozen(), torch.enable_grad():
        for prefixes in iterate_prefixes(model, queries.prompts, memory=memory // 4, max_rows=SWEPT):
            rows = prefixes.rows.cpu()
            clean[rows], values[rows] = _attribute(prefixes, tokens[rows], embedding.mean)
            advance(len(prefixes))
    return HeadEffects(values, clean, "attribution", labelled.task, seed)


def _attribute(
    prefixes: Prefixes, answers: Tensor, target: Float[Tensor, "layer head d_head"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch layer head"]]:
    """Log-probability of each answer, and its derivative by each head's alpha at 0."""
    model = prefixes.model
    alpha = torch.zeros(len(prefixes), model.n_layers, model.n_heads, device=model.device, requires_grad=True)
    logits = injected_logits(prefixes, Intervention(target[None], alpha))
    log_probs = logits.log_softmax(dim=-1).gather(-1, answers.to(logits.device)[:, None])[:, 0]
    check_finite(prefixes, log_probs.detach()[:, None], "log-probabilities")
    (slope,) = torch.autograd.grad(log_probs.sum(), alpha)
    return log_probs.detach().cpu(), slope.cpu()
