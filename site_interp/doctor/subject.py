"""The model under test, the prompts it is tested on, and what it says about each of them when asked alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.injection import Intervention, injecting
from site_interp.model import Model
from site_interp.model.plain import sliding_window
from site_interp.prefixes import Prefixes, encode_prompts
from site_interp.prompts import QA, draw_icl_prompts
from site_interp.tasks import Labelled, load_task

TASK = "country-capital"  # inputs of one to six words
N_SHOTS = 3
# A longer prompt is not run to reach the end of a sliding window: on a CPU it would take longer than all the rest.
LONGEST_PROMPT = 1100
ONE_TOKEN_TEXTS = ("The", "A", "A:", ".", "")  # the last is one token where a BOS is added
# Largest deviation, as a share of the largest value compared. fp32 keeps 7 digits; three layers lose one or two of
# them, thirty lose three. What breaks in practice is off by more than a tenth, 16-bit rounding by up to a twentieth.
TINY_LAYERS = 4
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.05}
TINY_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Subject:
    """A model, with prompts of unequal length from a bundled task.

    Args:
        given: As loaded: most forwards run its own modules.
    """

    given: Model

    @cached_property
    def model(self) -> Model:
        """With the bridge in every forward, as a caller runs it; one check compares both ways."""
        return self.given.bridged()

    @property
    def tolerance(self) -> float:
        """Largest deviation that rounding explains, as a share of the largest value."""
        if self.model.dtype == torch.float32 and self.model.n_layers <= TINY_LAYERS:
            return TINY_TOLERANCE
        return TOLERANCE[self.model.dtype]

    @cached_property
    def prompts(self) -> tuple[str, ...]:
        """Zero-shot and few-shot prompts in no order of length; the last has one token, if some text has."""
        inputs = sorted((example.input for example in load_task(TASK).test), key=lambda text: (len(text), text))
        short, middle, long = inputs[0], inputs[len(inputs) // 2], inputs[-1]
        zero_shot = [QA.zero_shot(text) for text in (middle, short, long)]
        few_shot = few_shot_prompts((long, short), n_shots=N_SHOTS)
        tokenizer = self.model.tokenizer
        single = [text for text in ONE_TOKEN_TEXTS if len(tokenizer(text).input_ids) == 1]
        return (zero_shot[0], few_shot[0], zero_shot[1], few_shot[1], zero_shot[2], *single[:1])

    @cached_property
    def rows(self) -> tuple[list[int], ...]:
        """Token ids of the prompts."""
        return tuple(self.model.token_ids(prompt) for prompt in self.prompts)

    @cached_property
    def logits(self) -> tuple[Float[Tensor, "pos d_vocab"], ...]:
        """Logits after every token of each prompt, run alone: no padding, no cache."""
        return tuple(self.alone(row) for row in self.rows)

    @cached_property
    def buckets(self) -> list[Prefixes]:
        """The prompts in buckets of similar length, all but the last token computed."""
        return encode_prompts(self.model, self.prompts)

    @cached_property
    def window_prompts(self) -> tuple[str, ...]:
        """A prompt longer than the sliding window and a short one beside it; none where that cannot be done."""
        window = sliding_window(self.model)
        if window is None or window >= min(LONGEST_PROMPT, self.model.n_ctx):
            return ()
        for n_shots in range(N_SHOTS, Labelled(load_task(TASK)).n_train):
            (prompt,) = few_shot_prompts((load_task(TASK).test[0].input,), n_shots=n_shots)
            n_tokens = len(self.model.tokenizer(prompt).input_ids)
            if n_tokens > window:
                return (prompt, self.prompts[0]) if n_tokens <= min(LONGEST_PROMPT, self.model.n_ctx) else ()
        return ()

    @cached_property
    def z(self) -> Float[Tensor, "prompt layer head d_head"]:
        """z of every head at the last token of each prompt, run alone."""
        return torch.cat([self.head_outputs(row)[0] for row in self.rows])

    @cached_property
    def intervention(self) -> Intervention:
        """For each prompt the z of another one, with a little noise, and alphas drawn from [0, 1]."""
        draw = torch.Generator().manual_seed(0)
        noise = torch.randn(self.z.shape, generator=draw).to(self.z)
        target = self.z.roll(1, 0) + 0.1 * self.z.std() * noise
        return Intervention(target, torch.rand(self.z.shape[:3], generator=draw).to(self.z))

    @cached_property
    def injected(self) -> Float[Tensor, "prompt d_vocab"]:
        """Logits after each prompt, run alone and as a whole with its intervention, fp32."""
        found = []
        for index, row in enumerate(self.rows):
            with injecting(self.model, self.intervention.rows(torch.tensor([index]))):
                found.append(self.alone(row, n_logits=1))
        return torch.cat(found).float()

    @torch.no_grad()
    def alone(self, row: Sequence[int], *, n_logits: int = 0) -> Float[Tensor, "pos d_vocab"]:
        """Logits of one row in a forward of its own, of its last `n_logits` positions; 0 means all."""
        ids = torch.tensor([list(row)], device=self.model.device)
        logits, _ = self.model.forward(ids, torch.ones_like(ids), n_logits=n_logits)
        return logits[0]

    def head_outputs(
        self, row: Sequence[int]
    ) -> tuple[Float[Tensor, "1 layer head d_head"], Float[Tensor, "1 d_vocab"]]:
        """z of every head at the last token of one row, run alone, and the logits after it."""
        seen: dict[int, Tensor] = {}

        def keep(layer: int) -> Callable[[Tensor], None]:
            return lambda z: seen.update({layer: z[:, -1].float()})

        layers = range(self.model.n_layers)
        with self.model.hooked([(self.model.hook_z(layer), keep(layer)) for layer in layers]):
            logits = self.alone(row, n_logits=1)
        return torch.stack([seen[layer] for layer in layers], dim=1), logits

    def padded(
        self, rows: Sequence[Sequence[int]], side: str
    ) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"], list[int]]:
        """Ids, mask and the column of each row's first token, padded on a side with a token that would matter."""
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), rows[0][-1])
        mask = torch.zeros_like(ids)
        starts = [longest - len(row) if side == "left" else 0 for row in rows]
        for index, (row, start) in enumerate(zip(rows, starts, strict=True)):
            ids[index, start : start + len(row)] = torch.tensor(row)
            mask[index, start : start + len(row)] = 1
        return ids.to(self.model.device), mask.to(self.model.device), starts


def few_shot_prompts(inputs: Sequence[str], *, n_shots: int) -> tuple[str, ...]:
    """Prompts of the task for these inputs, each with demonstrations of its own."""
    return draw_icl_prompts(Labelled(load_task(TASK)), QA, inputs, n_shots=n_shots, seed=0)


def share(found: Tensor, expected: Tensor) -> float:
    """The largest difference as a share of the largest value expected.

    Raises:
        ValueError: Values that are not finite, on which any comparison would be silent.
    """
    if found.shape != expected.shape:
        raise ValueError(f"Cannot compare: got shape {tuple(found.shape)} instead of {tuple(expected.shape)}.")
    if not (found.isfinite().all() and expected.isfinite().all()):
        raise ValueError("The model's values are not finite.")
    apart = (found.float() - expected.float()).abs().max()
    return float(apart / expected.float().abs().max().clamp(min=1e-6))
