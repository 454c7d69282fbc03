"""Learning alpha by gradient with the model frozen: many runs step together in one batch on prefixes computed once.

A row of a batch is one training example of one run, with that run's target and alpha.
Adam is elementwise, so runs that share a batch do not touch each other; one run is the special case.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.embedding import TaskEmbedding
from site_interp.errors import UserError
from site_interp.fit_plan import FitPlan, FitRun, draw_plan
from site_interp.fit_steps import Row, Validation, Written, means, prompts_of, row_losses, windows
from site_interp.kept import KeptPrefixes, kept_bytes
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.progress import Advance, advancing
from site_interp.selection import PAPER, FitSettings, FitTrace, HeadSelection
from site_interp.tasks import Labelled, Task


def fit_selection(
    model: Model,
    task: Task | Labelled,
    embedding: TaskEmbedding,
    *,
    seed: int = 0,
    settings: FitSettings = PAPER,
    memory: int = DEFAULT_MEMORY,
    progress: Advance | None = None,
) -> HeadSelection:
    """Fit one alpha per head so that zero-shot prompts, injected once, give the task's answers.

        minimise  - log p(first answer token | zero-shot prompt, z[l, h] <- lerp(z[l, h], t[l, h], alpha[l, h]))
        alpha = sigmoid(logits)

    Adam from logits 0, cross-entropy of the first answer token only, validation on held-out examples (SITE, section 3).

    Args:
        model: Frozen during the fit, as before afterwards.
        task: Its training and validation splits are used; a `Labelled` counts the answers looked at.
        embedding: The target, from `embed_task`.
        seed: Decides the order of the training examples.
        settings: Steps, batch size, step size, validation.
        memory: Budget in bytes, beside the model.
        progress: Called with the steps done; by default a bar is shown.

    Returns:
        The selection of the best validated step (or the last, by `settings.checkpoint`), with its trace.

    Raises:
        UserError: No training or validation examples, or an answer that merges with its prompt.

    Example:
        selection = fit_selection(model, task, embed_task(model, task))
        quick = fit_selection(model, task, embedding, settings=FitSettings(n_steps=40, n_valid=20))
    """
    run = FitRun(embedding, task if isinstance(task, Labelled) else Labelled(task), seed)
    with advancing(settings.n_steps, "fitting", progress) as advance:
        return fit_selections(model, [run], settings=settings, memory=memory, progress=advance)[0]


def fit_selections(
    model: Model,
    runs: Sequence[FitRun],
    *,
    settings: FitSettings = PAPER,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
    weigh: bool = False,
) -> list[HeadSelection]:
    """Fit many runs together; each comes out as it would alone, up to rounding.

    Runs whose validation prompts do not fit in the budget together are fitted one part after the other. `progress` is
    called with run-steps: one step of one run counts 1. With `weigh` the logits are weights (`fit_weights`).

    Returns:
        One selection for each run, in their order.
    """
    plans = [draw_plan(model, run, settings) for run in runs]
    texts = dict.fromkeys(prompt for plan in plans for prompt, _ in plan.valid)
    if len(runs) > 1 and kept_bytes(model, texts, memory // 4) > memory // 4:
        half = len(runs) // 2
        parts = (runs[:half], runs[half:])
        return [
            selection
            for part in parts
            for selection in fit_selections(
                model, part, settings=settings, memory=memory, progress=progress, weigh=weigh
            )
        ]
    with model.frozen(), torch.enable_grad():
        return _fit(model, runs, plans, settings, memory, progress, weigh=weigh)


def fit_joint_selection(
    model: Model,
    runs: Sequence[FitRun],
    *,
    settings: FitSettings = PAPER,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
) -> HeadSelection:
    """One alpha for several tasks, each with its own embedding: the mean of their losses is minimised.

    What a task-specific alpha is set against (SITE, task-agnostic selection). Every step takes `batch_size` examples of
    each task; the step with the lowest mean validation loss is kept. Arguments as in `fit_selections`.

    Raises:
        UserError: No run, or as in `fit_selections`.
    """
    if not runs:
        raise UserError("Cannot fit one alpha for several tasks: no task was given. Give some.")
    plans = [draw_plan(model, run, settings) for run in runs]
    with model.frozen(), torch.enable_grad():
        return _fit(model, runs, plans, settings, memory, progress, joint=True)[0]


def fit_weights(
    model: Model,
    runs: Sequence[FitRun],
    *,
    settings: FitSettings,
    memory: int = DEFAULT_MEMORY,
    progress: Advance = lambda _: None,
) -> list[tuple[Float[Tensor, "layer head"], FitTrace]]:
    """One real weight per head instead of a share: z <- z + weight * t, from weights `settings.init`.

    What learnable task vectors fit (`baselines.LTV`). Arguments as in `fit_selections`.

    Returns:
        For each run its weights, and how the fit went.
    """
    found = fit_selections(model, runs, settings=settings, memory=memory, progress=progress, weigh=True)
    return [(one.logits, one.trace) for one in found if one.trace is not None]


def _fit(
    model: Model,
    runs: Sequence[FitRun],
    plans: Sequence[FitPlan],
    settings: FitSettings,
    memory: int,
    progress: Advance,
    *,
    joint: bool = False,
    weigh: bool = False,
) -> list[HeadSelection]:
    """One selection for each run, or a single one that all of them share."""
    targets = torch.stack([run.embedding.mean for run in runs]).to(model.device, torch.float32)
    n_alphas = 1 if joint else len(runs)
    written = Written(targets, settings, "weights" if weigh else "logits")
    shape = (n_alphas, model.n_layers, model.n_heads if settings.per == "head" else 1)
    fitted = torch.full(shape, float(settings.init), device=model.device, requires_grad=True)
    optimizer = torch.optim.Adam([fitted], lr=settings.lr)
    scratch = memory // 4  # for the rows of a step, and for encoding prompts
    validating = Validation(model, plans, scratch)
    losses: list[list[float]] = [[] for _ in range(n_alphas)]
    validations: list[list[tuple[int, float, Tensor]]] = [[] for _ in range(n_alphas)]
    for first, last in windows(model, plans, settings.n_steps, (memory - scratch - validating.n_bytes, scratch)):
        train = KeptPrefixes(model, prompts_of(plans, first, last), scratch)
        for step in range(first, last):
            rows = [Row(run, *item) for run, plan in enumerate(plans) for item in plan.steps[step]]
            optimizer.zero_grad()
            logits = fitted.expand(len(runs), -1, model.n_heads)
            per_row = row_losses(train, rows, written, logits, scratch, backward=True)
            optimizer.step()
            for index, loss in enumerate(_per_alpha(means(per_row, len(runs)), n_alphas)):
                losses[index].append(loss)
            if (step + 1) % settings.validate_every == 0 or step + 1 == settings.n_steps:
                for index, loss in enumerate(_per_alpha(validating.losses(written, logits), n_alphas)):
                    validations[index].append(
                        (step + 1, loss, fitted[index].detach().expand(-1, model.n_heads).clone())
                    )
            progress(len(runs))
    labels = [sum(run.labelled.n_used for run in runs)] if joint else [run.labelled.n_used for run in runs]
    return [
        _selection(run.seed, n_labels, (train_losses, validated), settings)
        for run, n_labels, train_losses, validated in zip(runs, labels, losses, validations, strict=False)
    ]


def _per_alpha(losses: Sequence[float], n_alphas: int) -> Sequence[float]:
    """Losses of runs that each have their alpha, or the mean of those that share one."""
    return losses if n_alphas == len(losses) else [sum(losses) / len(losses)]


def _selection(
    seed: int,
    n_labels: int,
    went: tuple[Sequence[float], Sequence[tuple[int, float, Tensor]]],
    settings: FitSettings,
) -> HeadSelection:
    """The kept step of (training losses, validations)."""
    losses, validated = went
    step, _, logits = min(validated, key=lambda found: found[1]) if settings.checkpoint == "best" else validated[-1]
    trace = FitTrace(
        train_loss=tuple(losses),
        valid_steps=tuple(found[0] for found in validated),
        valid_loss=tuple(found[1] for found in validated),
        chosen_step=step,
    )
    return HeadSelection(logits.cpu(), trace, settings, seed, n_labels)
