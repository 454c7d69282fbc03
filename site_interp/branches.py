"""Many alphas on every prompt at once: the sweep over all heads, and every other question with many small changes.

The formula is that of `injection`. There each row of a batch is one prompt with its own copy of the prefix; here a
prompt's variants share the prefix and begin at the first layer they change (`model.branches`). A sweep over the heads
of 10-shot prompts takes about a hundredth of the time of full forwards.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.injection import Intervention, injected_logits
from site_interp.model import Model, forward_branches, select_rows
from site_interp.prefixes import DEFAULT_MEMORY, Prefixes, check_finite, kv_bytes

# The plain token goes through the same forward: if that gives other logits, no branch can be trusted.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
VOCAB_ROWS = 64  # rows whose log-probabilities are taken at a time, so that their logits stay in the processor's cache


@dataclass(frozen=True)
class BranchScores:
    """Log-probability of each prompt's answer token, in nats.

    Args:
        clean: Of the model as it is.
        branches: With each alpha injected.
    """

    clean: Float[Tensor, " batch"]
    branches: Float[Tensor, "batch branch"]

    @property
    def effects(self) -> Float[Tensor, "batch branch"]:
        """Change of the log-probability by each alpha; above 0 it makes the answer more likely."""
        return self.branches - self.clean[:, None]


@torch.no_grad()
def score_branches(
    prefixes: Prefixes,
    answers: Int[Tensor, " batch"],
    target: Float[Tensor, "#batch layer head d_head"],
    alphas: Float[Tensor, "branch layer head"],
    *,
    memory: int = DEFAULT_MEMORY,
) -> BranchScores:
    """Inject every alpha into the last token of every prompt, and read the answer's log-probability.

    Cost: for each prompt and alpha one token, from the first layer where that alpha is not 0. The prefixes stay as they
    are.

    Args:
        prefixes: The prompts.
        answers: Token id of each prompt's answer (its first token).
        target: What to move z towards, one for all prompts or one for each.
        alphas: Shares taken from the target.
        memory: Budget in bytes, beside the model and the prefixes.

    Raises:
        UserError: Shapes that do not fit.
        NotFiniteError: Logits that are nan or infinite; names the prompt.
        RuntimeError: The model, run this way, does not give its plain logits.
    """
    model = prefixes.model
    if model.is_watched:
        raise UserError("Cannot inject inside another injection: both would write. Leave that block first.")
    _check_shapes(model, target, alphas, len(prefixes))
    alphas, target = alphas.to(model.device, model.dtype), target.to(model.device, model.dtype)
    branches = torch.zeros(len(prefixes), len(alphas))
    clean = torch.zeros(len(prefixes))
    order = first_layers(alphas).argsort(stable=True)
    n_branches, n_prompts = _chunk(prefixes, len(alphas), memory)
    for first in range(0, len(prefixes), n_prompts):
        rows = torch.arange(first, min(first + n_prompts, len(prefixes)), device=prefixes.ids.device)
        part = prefixes if len(rows) == len(prefixes) else prefixes.select(rows)
        part_target = target if len(target) == 1 else target[rows]
        for chosen in order.split(n_branches):
            run = _run if model.lean.serves else _run_rows
            found = run(part, answers[rows], part_target, alphas[chosen]).cpu()
            clean[rows.cpu()] = found[:, 0]
            branches[rows.cpu()[:, None], chosen.cpu()] = found[:, 1:]
    return BranchScores(clean, branches)


def first_layers(alphas: Float[Tensor, "branch layer head"]) -> Int[Tensor, " branch"]:
    """The first layer that each alpha changes; the number of layers where it changes none."""
    changed = (alphas != 0).any(dim=-1)
    layers = torch.arange(alphas.shape[1], device=alphas.device)
    return torch.where(changed, layers, alphas.shape[1]).amin(dim=1)


def _run(
    prefixes: Prefixes,
    answers: Int[Tensor, " batch"],
    target: Float[Tensor, "#batch layer head d_head"],
    alphas: Float[Tensor, "branch layer head"],
) -> Float[Tensor, "batch query"]:
    """Log-probabilities of the plain token and of its branches, which are in the order of their first layers."""
    model = prefixes.model
    first = first_layers(alphas).clamp(max=model.n_layers - 1)
    n_new = torch.bincount(first, minlength=model.n_layers).tolist()
    fired = []

    def inject(z: Tensor, layer: int) -> Tensor | None:
        fired.append(z.shape[1] - 1)
        changed = (alphas[:, layer] != 0).any(dim=-1).nonzero()[:, 0]
        if not len(changed):
            return None
        z = z.clone()
        share = alphas[changed, layer][None, :, :, None]
        z[:, 1 + changed] = torch.lerp(z[:, 1 + changed], target[:, layer][:, None].expand_as(z[:, 1 + changed]), share)
        return z

    hooks = [(model.hook_z(layer), lambda z, layer=layer: inject(z, layer)) for layer in range(model.n_layers)]
    with model.hooked(hooks):
        logits = forward_branches(model, prefixes.ids[:, -1:], prefixes.mask, select_rows(prefixes.cache), n_new)
    if fired != torch.tensor(n_new).cumsum(0).tolist():
        raise RuntimeError(f"Branches of {model.name} went wrong: hook_z saw {fired} of them, layer by layer.")
    plain, _ = prefixes.run_last()
    check_finite(prefixes, plain[:, -1], "logits")
    off = float((logits[:, 0] - plain[:, -1]).abs().max() / plain.abs().max().clamp(min=1e-6))
    if not off <= TOLERANCE[model.dtype]:
        raise RuntimeError(
            f"Branches of {model.name} went wrong: its plain logits come out different by {off:.1%}. Its attention "
            "does something that is not known here; use model.bridged() to go row by row."
        )
    log_probs = _log_probs(logits, answers)
    check_finite(prefixes, log_probs, "log-probabilities")
    return log_probs


def _run_rows(
    prefixes: Prefixes,
    answers: Int[Tensor, " batch"],
    target: Float[Tensor, "#batch layer head d_head"],
    alphas: Float[Tensor, "branch layer head"],
) -> Float[Tensor, "batch query"]:
    """The same one alpha after the other, each prompt a row: for a model that runs through the bridge only."""
    clean, _ = prefixes.run_last()
    logits = [injected_logits(prefixes, Intervention(target, alpha[None])) for alpha in alphas]
    return _log_probs(torch.stack([clean[:, -1].float(), *logits], dim=1), answers)


def _log_probs(
    logits: Float[Tensor, "batch query d_vocab"], answers: Int[Tensor, " batch"]
) -> Float[Tensor, "batch query"]:
    """Log-probability of each prompt's answer token, in fp32, a few rows at a time."""
    n_queries = logits.shape[1]
    wanted = answers.to(logits.device).repeat_interleave(n_queries)
    found = [
        part.float().gather(-1, tokens[:, None])[:, 0] - part.float().logsumexp(dim=-1)
        for part, tokens in zip(logits.flatten(0, 1).split(VOCAB_ROWS), wanted.split(VOCAB_ROWS), strict=True)
    ]
    return torch.cat(found).view(-1, n_queries)


def _chunk(prefixes: Prefixes, n_alphas: int, memory: int) -> tuple[int, int]:
    """How many branches, and of how many prompts, fit in the budget together."""
    model = prefixes.model
    prompt = 3 * kv_bytes(model, prefixes.ids.shape[1])
    # One query's logits, the widest activations of a layer, and its attention scores.
    query = 4 * (2 * model.d_vocab + 40 * model.d_model + 4 * model.n_heads * prefixes.ids.shape[1])
    n_branches = max(1, min(n_alphas, (memory - prompt) // query - 1))
    return n_branches, max(1, memory // (prompt + (1 + n_branches) * query))


def _check_shapes(model: Model, target: Tensor, alphas: Tensor, n_prompts: int) -> None:
    heads = (model.n_layers, model.n_heads)
    fits = target.shape[1:] == (*heads, model.d_head) and alphas.shape[1:] == heads and len(target) in (1, n_prompts)
    if not fits or not len(alphas):
        raise UserError(
            f"Cannot inject into {n_prompts} prompts of {model.name}: target {tuple(target.shape)} and alphas "
            f"{tuple(alphas.shape)} must be [1 or {n_prompts}, layer, head, d_head] and [branch, layer, head] with "
            f"{heads[0]} layers, {heads[1]} heads and d_head {model.d_head}."
        )


__all__ = ["BranchScores", "first_layers", "score_branches"]
