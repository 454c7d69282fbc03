"""Checks of the injection: exact where it must be, the same on a prefix as in a full forward, and never unnoticed."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from site_interp.branches import score_branches
from site_interp.doctor.check import Finding
from site_interp.doctor.subject import Subject, share
from site_interp.embedding import head_outputs
from site_interp.injection import Intervention, injected_logits, injecting, last_columns
from site_interp.model import select_rows
from site_interp.prefixes import Prefixes, encode_prompts, join_prefixes

N_STEPS = 3  # tokens decoded after an injected prefill
N_ROWS = 3  # rows of forwards over whole prompts; more would only take longer


@torch.no_grad()
def own_modules_equal_bridge(subject: Subject) -> Finding:
    """All prompts in one batch, plain and injected, run by the model's own modules and by the bridge."""
    if not subject.given.lean.serves:
        return Finding(None, None, "every forward runs the bridge")
    logits = []
    for model in (subject.given, subject.model):
        prefixes = join_prefixes(encode_prompts(model, subject.prompts))
        plain, _ = prefixes.run_last()
        injected = injected_logits(prefixes, subject.intervention.rows(prefixes.rows))
        logits.append(torch.cat([plain[:, -1].float(), injected]))
    return Finding(share(*logits), subject.tolerance, f"{len(subject.prompts)} prompts, plain and injected")


@torch.no_grad()
def alpha_zero_changes_nothing(subject: Subject) -> Finding:
    """Bit-equal logits on prefixes and in a right-padded forward."""
    model, target = subject.model, subject.intervention.target
    zero = torch.zeros_like(subject.intervention.alpha)
    off = []
    for prefixes in subject.buckets:
        plain, _ = prefixes.run_last()
        injected = injected_logits(prefixes, Intervention(target, zero).rows(prefixes.rows))
        off.append(share(injected, plain[:, -1].float()))
    ids, mask, _ = subject.padded(subject.rows[:N_ROWS], "right")
    plain, _ = model.forward(ids, mask)
    with injecting(model, Intervention(target[:N_ROWS], zero[:N_ROWS])):
        injected, _ = model.forward(ids, mask)
    real = mask.bool()
    off.append(share(injected[real], plain[real]))
    return Finding(max(off), 0, "bit-equal on prefixes and in a padded forward")


@torch.no_grad()
def alpha_one_replaces_z(subject: Subject) -> Finding:
    """z read by hooks that come after the injection, layer by layer."""
    off = torch.zeros(subject.model.n_layers)
    for prefixes in subject.buckets:
        target = subject.intervention.target[prefixes.rows]
        alpha = torch.ones_like(target[..., 0])
        with injecting(subject.model, Intervention(target, alpha), last_columns(prefixes)):
            seen = head_outputs(prefixes)
        wanted = target.to(subject.model.dtype).float().cpu()
        layers = [share(seen[:, layer], wanted[:, layer]) for layer in range(subject.model.n_layers)]
        off = torch.maximum(off, torch.tensor(layers))
    wrong = off.nonzero()[:, 0].tolist()
    detail = f"layers {wrong} keep another z" if wrong else f"z after the hook equals the target at {len(off)} layers"
    return Finding(float(off.max()), 0, detail)


@torch.no_grad()
def alpha_one_gives_the_other(subject: Subject) -> Finding:
    """All heads of another prompt of the same length and last token, injected, must give that prompt's logits.

    What the last token computes depends on its own embedding and on z alone.
    """
    off = 0.0
    rows = subject.rows[:N_ROWS]
    for row in rows:
        other = [row[0], *reversed(row[1:-1]), row[-1]]
        z, expected = subject.head_outputs(other)
        with injecting(subject.model, Intervention(z, torch.ones_like(z[..., 0]))):
            logits = subject.alone(row, n_logits=1)
        off = max(off, share(logits, expected))
    return Finding(off, subject.tolerance, f"{len(rows)} prompts take the logits of another with the same last token")


@torch.no_grad()
def prefix_equals_full(subject: Subject) -> Finding:
    """One token on the kept prefix against the whole prompt alone."""
    off = _prefix_deviation(subject, subject.buckets)
    return Finding(off, subject.tolerance, f"{len(subject.rows)} prompts in {len(subject.buckets)} buckets by length")


@torch.no_grad()
def injected_prefix_equals_full(subject: Subject) -> Finding:
    """The same with heads injected, on the one side into whole prompts."""
    off = _injected_deviation(subject, subject.buckets)
    return Finding(off, subject.tolerance, f"{len(subject.rows)} prompts, each with its own target and alpha")


@torch.no_grad()
def joined_prefixes_equal_full(subject: Subject) -> Finding:
    """Prefixes of all lengths in one batch, plain and injected."""
    joined = [join_prefixes(subject.buckets)]
    off = max(_prefix_deviation(subject, joined), _injected_deviation(subject, joined))
    return Finding(off, subject.tolerance, f"{len(subject.rows)} prompts, plain and injected")


@torch.no_grad()
def branches_equal_rows(subject: Subject) -> Finding:
    """Each prompt's own alpha, alone in the layers up to each, as branches of all prompts and as rows."""
    if not subject.given.lean.serves:
        return Finding(None, None, "every forward runs the bridge")
    model = subject.given
    prefixes = join_prefixes(encode_prompts(model, subject.prompts))
    given = subject.intervention.rows(prefixes.rows)
    layers = torch.arange(model.n_layers)
    late = torch.stack([given.alpha[0] * (layers >= first)[:, None] for first in (0, model.n_layers // 2)])
    answers = torch.zeros(len(prefixes), dtype=torch.long, device=model.device)
    found = score_branches(prefixes, answers, given.target, late)
    rows = [injected_logits(prefixes, Intervention(given.target, alpha[None])) for alpha in late]
    expected = torch.stack([logits.log_softmax(dim=-1)[:, 0] for logits in rows], dim=1)
    return Finding(share(found.branches, expected.cpu()), subject.tolerance, f"{len(late)} of {len(prefixes)} prompts")


def _prefix_deviation(subject: Subject, batches: Sequence[Prefixes]) -> float:
    expected = torch.stack([logits[-1] for logits in subject.logits])
    return max(share(prefixes.run_last()[0][:, -1], expected[prefixes.rows]) for prefixes in batches)


def _injected_deviation(subject: Subject, batches: Sequence[Prefixes]) -> float:
    return max(
        share(injected_logits(prefixes, subject.intervention.rows(prefixes.rows)), subject.injected[prefixes.rows])
        for prefixes in batches
    )


@torch.no_grad()
def receipt_counts(subject: Subject) -> Finding:
    """One injection per row and layer, in a padded forward and during decoding; none and two are errors."""
    model, rows = subject.model, subject.rows[:N_ROWS]
    ids, mask, _ = subject.padded(rows, "right")
    with injecting(model, subject.intervention.rows(torch.arange(N_ROWS))) as receipt:
        model.forward(ids, mask)
    wrong = abs(receipt.n_injected - len(rows) * model.n_layers)
    wrong += receipt.columns != [len(row) - 1 for row in rows]
    bucket = max(subject.buckets, key=len)
    wrong += abs(_decoded(subject, bucket) - len(bucket) * model.n_layers)
    mistakes = {"no forward": _no_forward, "a position never reached": _never_reached}
    mistakes |= {"a layer injected twice": _twice} if model.n_layers > 1 else {}
    unnoticed = [name for name, mistake in mistakes.items() if not _is_noticed(mistake, subject)]
    detail = f"{len(rows)} rows x {model.n_layers} layers; noticed: {', '.join(mistakes)}"
    if unnoticed:
        detail = f"unnoticed: {', '.join(unnoticed)}"
    return Finding(wrong + len(unnoticed), 0, detail)


def _decoded(subject: Subject, prefixes: Prefixes) -> int:
    """(row, layer) pairs injected over a prefill and some decoded tokens."""
    intervention, mask = subject.intervention.rows(prefixes.rows), prefixes.mask
    with injecting(subject.model, intervention, last_columns(prefixes)) as receipt:
        logits, cache = prefixes.run_last()
        for _ in range(N_STEPS):
            chosen = logits[:, -1:].argmax(dim=-1)
            mask = torch.cat([mask, torch.ones_like(chosen)], dim=1)
            logits, cache = subject.model.forward(chosen, mask, select_rows(cache), n_logits=1)
    return receipt.n_injected


def _is_noticed(mistake: Callable[[Subject, Intervention], None], subject: Subject) -> bool:
    try:
        mistake(subject, subject.intervention.rows(torch.tensor([0])))
    except RuntimeError as error:
        if "inject" in str(error).lower():  # the receipt's own errors, not those of torch
            return True
        raise
    return False


def _no_forward(subject: Subject, intervention: Intervention) -> None:
    with injecting(subject.model, intervention):
        pass


def _never_reached(subject: Subject, intervention: Intervention) -> None:
    beyond = torch.tensor([len(subject.rows[0])], device=subject.model.device)
    with injecting(subject.model, intervention, beyond):
        subject.alone(subject.rows[0], n_logits=1)


def _twice(subject: Subject, intervention: Intervention) -> None:
    """The hook point of the second layer fires in the first one as well."""
    model = subject.model
    point = model.bridge.hook_dict[model.hook_z(1)]

    def fire(z: Tensor) -> None:
        point(z)

    with injecting(model, intervention), model.hooked([(model.hook_z(0), fire)]):
        subject.alone(subject.rows[0], n_logits=1)
