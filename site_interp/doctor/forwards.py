"""Checks of plain forwards: batches, padding, cache, sliding window, and the same numbers as plain transformers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.doctor.check import Finding
from site_interp.doctor.subject import LONGEST_PROMPT, Subject, share
from site_interp.errors import UserError
from site_interp.model import pad_left, select_rows
from site_interp.model.check import check_at_load
from site_interp.model.plain import plain_log_probs, plain_token_ids, sliding_window
from site_interp.prefixes import encode_prompts

N_STEPS = 4  # tokens decoded on the cache
N_LAST = 8  # positions compared with plain transformers


def loads(subject: Subject) -> Finding:
    """The check that every load makes."""
    check_at_load(subject.given)
    return Finding(0, 0, "hook_z has its shape, logits are finite, and the same with the cache")


@torch.no_grad()
def batch_equals_single(subject: Subject) -> Finding:
    """Rows cut to one length, so that nothing is padded."""
    rows = [row for row in subject.rows if len(row) > 1]
    length = min(map(len, rows))
    ids = torch.tensor([row[:length] for row in rows], device=subject.model.device)
    logits, _ = subject.model.forward(ids, torch.ones_like(ids))
    expected = torch.stack([subject.alone(row[:length]) for row in ids.tolist()])
    return Finding(share(logits, expected), subject.tolerance, f"{len(rows)} rows of {length} tokens")


def left_padding_is_ignored(subject: Subject) -> Finding:
    """Padding as the package itself makes it."""
    return _padding_is_ignored(subject, "left")


def right_padding_is_ignored(subject: Subject) -> Finding:
    """Padding as a caller of the bridge may make it."""
    return _padding_is_ignored(subject, "right")


@torch.no_grad()
def _padding_is_ignored(subject: Subject, side: str) -> Finding:
    """Logits at every token of a padded batch against those of each row alone."""
    ids, mask, starts = subject.padded(subject.rows, side)
    logits, _ = subject.model.forward(ids, mask)
    found = [one[start : start + len(row)] for one, row, start in zip(logits, subject.rows, starts, strict=True)]
    lengths = sorted(map(len, subject.rows))
    off = share(torch.cat(found), torch.cat(subject.logits))
    return Finding(off, subject.tolerance, f"{len(lengths)} prompts of {lengths[0]} to {lengths[-1]} tokens")


def cache_equals_none(subject: Subject) -> Finding:
    """The last token on the cache of those before it, then greedy steps on the cache, against full forwards."""
    several = [row for row in subject.rows if len(row) > 1]
    one = [row for row in subject.rows if len(row) == 1]
    off = [cache_deviation(subject, rows) for rows in (several, one) if rows]
    return Finding(max(off), subject.tolerance, f"the last token and {N_STEPS} decoded ones, padded on the left")


@torch.no_grad()
def cache_deviation(subject: Subject, rows: Sequence[list[int]]) -> float:
    """How far cached logits are from those of full forwards; rows have one token each, or several each."""
    model = subject.model
    ids, mask = pad_left(rows, model.device)
    cache = None
    if ids.shape[1] > 1:
        _, cache = model.forward(ids[:, :-1], mask[:, :-1], n_logits=1)
    last, cache = model.forward(ids[:, -1:], mask, select_rows(cache), n_logits=1)
    steps, decoded = [last], [list(row) for row in rows]
    for _ in range(N_STEPS):
        chosen = steps[-1].argmax(dim=-1)
        for row, token in zip(decoded, chosen[:, 0].tolist(), strict=True):
            row.append(token)
        mask = torch.cat([mask, torch.ones_like(chosen)], dim=1)
        last, cache = model.forward(chosen, mask, cache, n_logits=1)
        steps.append(last)
    expected = torch.stack([subject.alone(row, n_logits=N_STEPS + 1) for row in decoded])
    return share(torch.cat(steps, dim=1), expected)


@torch.no_grad()
def window_is_kept(subject: Subject) -> Finding:
    """A prompt beyond the sliding window beside a short one: padded, on the cache, and from its prefix."""
    window, prompts = sliding_window(subject.model), subject.window_prompts
    if window is None:
        return Finding(None, None, "no layer has a sliding window")
    if not prompts:
        return Finding(None, None, f"no prompt beyond {window} tokens was run: at most {LONGEST_PROMPT} are affordable")
    rows = [subject.model.token_ids(prompt) for prompt in prompts]
    expected = torch.cat([subject.alone(row, n_logits=1) for row in rows])
    ids, mask, _ = subject.padded(rows, "left")
    logits, _ = subject.model.forward(ids, mask, n_logits=1)
    off = max(
        share(logits[:, -1], expected),
        cache_deviation(subject, rows),
        share(prefix_logits(subject, prompts), expected),
    )
    return Finding(off, subject.tolerance, f"{len(rows[0])} tokens, window {window}")


def prefix_logits(subject: Subject, prompts: Sequence[str]) -> Float[Tensor, "prompt d_vocab"]:
    """Next-token logits of prompts by the one-token path over their prefixes, in their order."""
    parts = encode_prompts(subject.model, prompts)
    logits = torch.cat([part.run_last()[0][:, -1] for part in parts])
    return logits[torch.cat([part.rows for part in parts]).argsort()]


@torch.no_grad()
def equals_plain(subject: Subject) -> Finding:
    """Log-probabilities against an independent load of the same files, without TransformerLens."""
    rows = [*subject.rows, *(subject.model.token_ids(prompt) for prompt in subject.window_prompts[:1])]
    try:
        expected = plain_log_probs(subject.model, rows, n_last=N_LAST)
    except UserError as error:  # an object of the caller may have no files
        return Finding(None, None, str(error))
    found = [subject.alone(row, n_logits=N_LAST).float().log_softmax(dim=-1) for row in rows]
    detail = f"the last {N_LAST} tokens of {len(rows)} prompts, weights loaded a second time"
    return Finding(share(torch.cat(found), torch.cat(expected)), subject.tolerance, detail)


def tokens_are_plain(subject: Subject) -> Finding:
    """Ids against a tokenizer loaded anew, and the number of BOS in each prompt."""
    rows = [subject.model.token_ids(prompt) for prompt in subject.prompts]
    try:
        plain = plain_token_ids(subject.model, subject.prompts)
    except UserError as error:
        return Finding(None, None, str(error))
    bos = subject.model.tokenizer.bos_token_id
    n_bos = [row.count(bos) for row in rows]
    compared = zip(subject.prompts, rows, plain, n_bos, strict=True)
    wrong = [prompt for prompt, row, ids, n in compared if row != ids or n > 1]
    detail = f"{len(rows)} prompts, at most {max(n_bos)} BOS in each"
    return Finding(len(wrong), 0, f"{detail}; wrong for {wrong[0]!r}" if wrong else detail)
