"""The slow, obvious way, as an oracle: plain transformers, one prompt at a time, whole forwards, no cache, loops.

It shares no code with site_interp: the head outputs are read and written where they enter the output projection.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Oracle:
    """A plain Hugging Face model with its tokenizer."""

    model: Any
    tokenizer: Any

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @property
    def projections(self) -> list[Any]:
        """The output projection of each layer's attention; its input is z, heads side by side."""
        if hasattr(self.model, "gpt_neox"):
            return [block.attention.dense for block in self.model.gpt_neox.layers]
        if hasattr(self.model, "transformer"):
            return [block.attn.c_proj for block in self.model.transformer.h]
        return [block.self_attn.o_proj for block in self.model.model.layers]

    @property
    def blocks(self) -> list[Any]:
        """The layers; what each returns is the residual stream behind it."""
        if hasattr(self.model, "gpt_neox"):
            return list(self.model.gpt_neox.layers)
        return list(self.model.transformer.h if hasattr(self.model, "transformer") else self.model.model.layers)

    @property
    def outputs(self) -> list[tuple[Any, Any]]:
        """What each layer's attention and MLP add to the residual stream is the output of these modules."""
        pairs = []
        for block in self.blocks:
            if hasattr(block, "pre_feedforward_layernorm"):  # Gemma: a norm comes between
                pairs.append((block.post_attention_layernorm, block.post_feedforward_layernorm))
            else:
                attention = next(getattr(block, n) for n in ("self_attn", "attn", "attention") if hasattr(block, n))
                pairs.append((attention, block.mlp))
        return pairs

    def ids(self, prompt: str) -> list[int]:
        ids: list[int] = self.tokenizer(prompt).input_ids
        return ids


def load_oracle(folder: Path, device: str = "cpu") -> Oracle:
    """The model and tokenizer of a folder, without TransformerLens."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return Oracle(model.to(device).eval().requires_grad_(False), AutoTokenizer.from_pretrained(folder))


@contextmanager
def _editing(oracle: Oracle, edit: Callable[[int, Tensor], Tensor | None]) -> Iterator[None]:
    """Pass the input of every output projection, [1, pos, head * d_head], through `edit(layer, z)`."""
    handles = []
    for layer, projection in enumerate(oracle.projections):

        def hook(_: Any, inputs: tuple[Tensor], layer: int = layer) -> tuple[Tensor] | None:
            edited = edit(layer, inputs[0])
            return None if edited is None else (edited,)

        handles.append(projection.register_forward_pre_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _forward(oracle: Oracle, ids: Sequence[int]) -> Tensor:
    logits: Tensor = oracle.model(torch.tensor([list(ids)], device=oracle.device), use_cache=False).logits[0]
    return logits


def reference_z(oracle: Oracle, prompt: str, n_heads: int) -> Tensor:
    """z of every head at the last token, [layer head d_head]."""
    seen: dict[int, Tensor] = {}
    with _editing(oracle, lambda layer, z: seen.__setitem__(layer, z[0, -1])):
        _forward(oracle, oracle.ids(prompt))
    return torch.stack([torch.stack(list(seen[layer].chunk(n_heads))) for layer in range(len(seen))])


def reference_logits(
    oracle: Oracle,
    ids: Sequence[int],
    position: int | None = None,
    target: Tensor | None = None,
    alpha: Tensor | None = None,
) -> Tensor:
    """Logits after every token, [pos d_vocab]; with a position, (1 - alpha) * z + alpha * target is written there.

    `target` is [layer head d_head] and `alpha` [layer head]; gradients reach alpha.
    """
    if position is None or target is None or alpha is None:
        return _forward(oracle, ids)

    def edit(layer: int, z: Tensor) -> Tensor:
        d_head, heads = target.shape[-1], []
        for head in range(target.shape[1]):
            own = z[0, position, head * d_head : (head + 1) * d_head]
            heads.append((1 - alpha[layer, head]) * own + alpha[layer, head] * target[layer, head])
        return torch.cat([z[:, :position], torch.cat(heads)[None, None], z[:, position + 1 :]], dim=1)

    with _editing(oracle, edit):
        return _forward(oracle, ids)


def reference_added_logits(oracle: Oracle, ids: Sequence[int], position: int, target: Tensor, share: Tensor) -> Tensor:
    """Logits after every token with z + share * target written at a position; gradients reach the share."""

    def edit(layer: int, z: Tensor) -> Tensor:
        added = torch.cat([share[layer, head] * target[layer, head] for head in range(target.shape[1])])
        return torch.cat([z[:, :position], z[:, position : position + 1] + added, z[:, position + 1 :]], dim=1)

    with _editing(oracle, edit):
        return _forward(oracle, ids)


def reference_last_logits(
    oracle: Oracle, prompt: str, target: Tensor | None = None, alpha: Tensor | None = None
) -> Tensor:
    """Logits after the prompt, its last token injected, [d_vocab]."""
    ids = oracle.ids(prompt)
    return reference_logits(oracle, ids, len(ids) - 1, target, alpha)[-1]


def reference_residual_ids(
    oracle: Oracle, prompt: str, n_tokens: int, layer: int, edit: Callable[[Tensor], Tensor]
) -> tuple[list[int], Tensor]:
    """Greedy tokens, and the logits of the first: the state behind a layer at the last prompt token is edited.

    A whole forward for each token; `edit` maps [d_model] to [d_model].
    """
    ids = oracle.ids(prompt)
    n_prompt, first = len(ids), None

    def hook(_: Any, __: Any, out: Any) -> Any:
        state = (out[0] if isinstance(out, tuple) else out).clone()
        state[0, n_prompt - 1] = edit(state[0, n_prompt - 1])
        return (state, *out[1:]) if isinstance(out, tuple) else state

    handle = oracle.blocks[layer].register_forward_hook(hook)
    try:
        for _ in range(n_tokens):
            logits = _forward(oracle, ids)[-1]
            first = logits if first is None else first
            ids.append(int(logits.argmax()))
    finally:
        handle.remove()
    assert first is not None
    return ids[n_prompt:], first


def reference_residual(oracle: Oracle, prompt: str, layer: int) -> Tensor:
    """The residual stream behind a layer at the last token, [d_model]."""
    seen: list[Tensor] = []
    reference_residual_ids(oracle, prompt, 1, layer, lambda state: seen.append(state.clone()) or state)  # type: ignore[func-returns-value]
    return seen[0]


def reference_z_gradient(oracle: Oracle, prompt: str, answer: int, n_heads: int) -> Tensor:
    """d loss / d z at the last token, effects through later layers included, [layer head d_head]."""
    ids = oracle.ids(prompt)
    n_layers, width = len(oracle.projections), reference_z(oracle, prompt, n_heads)[0].numel()
    shift = torch.zeros(n_layers, width, device=oracle.device, requires_grad=True)
    with _editing(oracle, lambda layer, z: torch.cat([z[:, :-1], z[:, -1:] + shift[layer]], dim=1)):
        loss = -_forward(oracle, ids)[-1].log_softmax(dim=-1)[answer]
    (gradient,) = torch.autograd.grad(loss, shift)
    return gradient.reshape(n_layers, n_heads, -1)


def reference_ids(
    oracle: Oracle, prompt: str, n_tokens: int, target: Tensor | None = None, alpha: Tensor | None = None
) -> list[int]:
    """Greedy continuation: a whole forward for each token, injecting each time at the last prompt token."""
    ids = oracle.ids(prompt)
    n_prompt = len(ids)
    for _ in range(n_tokens):
        logits = reference_logits(oracle, ids, n_prompt - 1, target, alpha)
        ids.append(int(logits[-1].argmax()))
    return ids[n_prompt:]


def reference_loss(
    oracle: Oracle, items: Sequence[tuple[str, int]], target: Tensor | None = None, alpha: Tensor | None = None
) -> float:
    """Mean cross-entropy of (prompt, first answer token) pairs."""
    losses = []
    for prompt, answer in items:
        log_probs = reference_last_logits(oracle, prompt, target, alpha).log_softmax(dim=-1)
        losses.append(-float(log_probs[answer]))
    return sum(losses) / len(losses)


def reference_fit(
    oracle: Oracle, steps: Sequence[Sequence[tuple[str, int]]], target: Tensor, *, lr: float
) -> tuple[Tensor, list[float]]:
    """Logits of alpha after Adam on the steps given, written out, one example at a time, and the loss of each step."""
    logits = torch.zeros_like(target[..., 0])
    first, second = torch.zeros_like(logits), torch.zeros_like(logits)
    losses = []
    for step, items in enumerate(steps, start=1):
        gradient, total = torch.zeros_like(logits), 0.0
        for prompt, answer in items:
            asked = logits.clone().requires_grad_()
            scores = reference_last_logits(oracle, prompt, target, 1 / (1 + torch.exp(-asked)))
            loss = -scores.log_softmax(dim=-1)[answer]
            gradient += torch.autograd.grad(loss, asked)[0] / len(items)
            total += float(loss.detach()) / len(items)
        losses.append(total)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        logits = logits - lr * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
    return logits, losses


def n_hooks(bridge: Any) -> int:
    """Hooks of every kind on the modules of a bridge and of the model inside it."""
    modules = {*bridge.modules(), *bridge.original_model.modules()}
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks) for module in modules
    )
