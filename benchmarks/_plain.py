"""The obvious way, to measure against: one prompt at a time, whole forwards through TransformerLens hooks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from site_interp.model import Model


def _ids(model: Model, prompt: str) -> Tensor:
    return torch.tensor([model.token_ids(prompt)], device=model.device)


@torch.no_grad()
def head_outputs(model: Model, prompt: str) -> Tensor:
    """z of every head at the last token of one prompt, logits computed at all positions; [layer head d_head]."""
    seen: list[Tensor] = []
    hooks = [(model.hook_z(layer), lambda z, hook: seen.append(z[0, -1].clone())) for layer in range(model.n_layers)]
    model.bridge.run_with_hooks(_ids(model, prompt), return_type="logits", fwd_hooks=hooks)
    return torch.stack(seen)


def loss(model: Model, prompt: str, answer: int, target: Tensor, alpha: Tensor) -> Tensor:
    """Cross-entropy of the first answer token after a whole forward with the last token injected."""

    def injecting(layer: int) -> Any:
        def inject(z: Tensor, hook: Any) -> Tensor:
            last = torch.lerp(z[:, -1:], target[layer], alpha[layer, :, None])
            return torch.cat([z[:, :-1], last], dim=1)

        return inject

    hooks = [(model.hook_z(layer), injecting(layer)) for layer in range(model.n_layers)]
    logits = model.bridge.run_with_hooks(_ids(model, prompt), return_type="logits", fwd_hooks=hooks)
    return torch.nn.functional.cross_entropy(logits[:, -1].float(), torch.tensor([answer], device=model.device))


class Fit:
    """Alpha of one task, one training example a step; each step and each validation example can be timed alone."""

    def __init__(self, model: Model, target: Tensor, lr: float) -> None:
        self.model, self.target = model, target.to(model.device)
        self.logits = torch.zeros(model.n_layers, model.n_heads, device=model.device, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.logits], lr=lr)

    def step(self, prompt: str, answer: int) -> float:
        """One step of Adam; its loss."""
        self.optimizer.zero_grad()
        value = loss(self.model, prompt, answer, self.target, torch.sigmoid(self.logits))
        value.backward()
        self.optimizer.step()
        return float(value.detach())

    @torch.no_grad()
    def validate(self, items: Sequence[tuple[str, int]]) -> float:
        """Mean loss over validation examples, one at a time."""
        alpha = torch.sigmoid(self.logits)
        return sum(float(loss(self.model, *item, self.target, alpha)) for item in items) / len(items)
