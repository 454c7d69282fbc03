"""Checks against a second load: another precision, another device. Only with `full`."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.doctor.check import Finding
from site_interp.doctor.forwards import prefix_logits
from site_interp.doctor.subject import N_SHOTS, TASK, Subject, few_shot_prompts, share
from site_interp.model import load_model
from site_interp.prompts import QA
from site_interp.tasks import load_task

N_PROMPTS = 48  # half zero-shot, half few-shot
DEVICE_TOLERANCE = 1e-3  # fp32; two devices add up in another order, in every one of thirty layers


@dataclass(frozen=True)
class Flips:
    """How the most likely next tokens of two precisions differ.

    Args:
        n_flipped: Prompts whose most likely token differs.
        n_ties: Prompts where several tokens share the largest logit, in the narrower precision.
        n: Prompts.
    """

    n_flipped: int
    n_ties: int
    n: int


def bf16_flips(subject: Subject) -> Finding:
    """Most likely tokens in a 16-bit precision against fp32: a number to know, not a failure."""
    model = subject.model
    is_wide = model.dtype == torch.float32
    other = torch.bfloat16 if is_wide else torch.float32
    second = Subject(
        load_model(model.name, device=str(model.device), dtype=other, revision=model.revision, check=False)
    )
    wide, narrow = (subject, second) if is_wide else (second, subject)
    flips = count_flips(last_logits(wide), last_logits(narrow))
    detail = (
        f"{flips.n_flipped} of {flips.n} prompts have another most likely token in {narrow.model.dtype_name}, "
        f"{flips.n_ties} an exact tie"
    )
    return Finding(flips.n_flipped / flips.n, None, detail)


def count_flips(wide: Float[Tensor, "prompt d_vocab"], narrow: Float[Tensor, "prompt d_vocab"]) -> Flips:
    """Count changed most likely tokens, and ties in the narrower precision.

    Example:
        >>> count_flips(torch.tensor([[1.0, 2.0], [3.0, 1.0]]), torch.tensor([[2.0, 2.0], [3.0, 1.0]]))
        Flips(n_flipped=1, n_ties=1, n=2)
    """
    flipped = int((wide.argmax(dim=-1) != narrow.argmax(dim=-1)).sum())
    ties = int(((narrow == narrow.amax(dim=-1, keepdim=True)).sum(dim=-1) > 1).sum())
    return Flips(flipped, ties, len(wide))


def device_equals_cpu(subject: Subject) -> Finding:
    """The same prompts on the CPU, in the same precision."""
    model = subject.model
    if model.device.type == "cpu":
        return Finding(None, None, "the model is on the CPU")
    second = Subject(load_model(model.name, device="cpu", dtype=model.dtype, revision=model.revision, check=False))
    tolerance = DEVICE_TOLERANCE if model.dtype == torch.float32 else subject.tolerance
    return Finding(
        share(last_logits(subject), last_logits(second)), tolerance, f"{N_PROMPTS} prompts on {model.device}"
    )


@torch.no_grad()
def last_logits(subject: Subject) -> Float[Tensor, "prompt d_vocab"]:
    """Next-token logits of the prompts that precisions are compared on, fp32 on the CPU."""
    inputs = [example.input for example in load_task(TASK).test[:N_PROMPTS]]
    half = len(inputs) // 2
    prompts = [*map(QA.zero_shot, inputs[:half]), *few_shot_prompts(inputs[half:], n_shots=N_SHOTS)]
    return prefix_logits(subject, prompts).float().cpu()
