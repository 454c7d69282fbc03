"""How likely answers are after a prompt: first-token hits and log-probabilities, in few forwards."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.injection import Edit, injecting, last_columns
from site_interp.prefixes import Prefixes, check_finite, length_buckets

SCORED_ROWS = 64  # (prompt, answer) pairs scored together
SCORED_POSITIONS = 256  # answer tokens of these, padding included: each holds logits over the whole vocabulary


def score_answers(
    prefixes: Prefixes, answers: Sequence[Sequence[Sequence[int]]], intervention: Edit | None
) -> list[tuple[float, float]]:
    """The best first-token hit and log-probability over the answers of each prompt; arguments as in `score_each`."""
    each = score_each(prefixes, answers, intervention)
    return [(max(hit for hit, _ in found), max(log_prob for _, log_prob in found)) for found in each]


@torch.no_grad()
def score_each(
    prefixes: Prefixes, answers: Sequence[Sequence[Sequence[int]]], intervention: Edit | None
) -> list[list[tuple[float, float]]]:
    """First-token hit and log-probability of every answer of each prompt.

    A hit needs the answer's first token to score strictly above every other token, so that ties and constant logits are
    never right.

    Args:
        prefixes: The prompts.
        answers: For each prompt, the token ids of its answers.
        intervention: What is injected at the last prompt token, or None.

    Returns:
        For each prompt and answer (hit, log-probability): 1.0 or 0.0, and nats of the whole answer.

    Raises:
        NotFiniteError: A logit is nan or infinite; names the prompt.
    """
    pairs = [(row, place, list(ids)) for row, several in enumerate(answers) for place, ids in enumerate(several)]
    scored = [[(0.0, float("-inf"))] * len(several) for several in answers]
    lengths = [len(ids) for *_, ids in pairs]
    for bucket in length_buckets(lengths, lambda n, length: n <= SCORED_ROWS and n * length <= SCORED_POSITIONS):
        part = [pairs[index] for index in bucket]
        rows = torch.tensor([row for row, *_ in part], device=prefixes.ids.device)
        shared = intervention if intervention is None else intervention.rows(rows)
        chosen = prefixes.select(rows)
        logits = answer_logits(chosen, [ids for *_, ids in part], shared)
        check_finite(chosen, logits, "logits")
        for (row, place, ids), row_logits in zip(part, logits, strict=True):
            target = torch.tensor(ids, device=row_logits.device)
            log_prob = row_logits[: len(ids)].log_softmax(-1).gather(-1, target[:, None]).sum()
            hit = float((row_logits[0] >= row_logits[0, ids[0]]).sum() == 1)
            scored[row][place] = hit, float(log_prob)
    return scored


def answer_logits(
    prefixes: Prefixes, answers: Sequence[Sequence[int]], intervention: Edit | None
) -> Float[Tensor, "batch answer d_vocab"]:
    """Logits at the last prompt token and at every answer token but the last, in one forward, in fp32 at the end.

    Shorter answers are padded behind; gradients reach what the edit was made of.
    """
    longest = max(map(len, answers))
    padded = [[*ids[:-1], *[0] * (longest - len(ids))] for ids in answers]
    more = torch.tensor(padded, dtype=torch.long, device=prefixes.ids.device)
    if intervention is None:
        logits, _ = prefixes.run_last(more, n_logits=0)
    else:
        with injecting(prefixes.model, intervention, last_columns(prefixes)):
            logits, _ = prefixes.run_last(more, n_logits=0)
    return logits.float()
