"""The check that every load makes: z is where it should be, and the cache changes nothing."""

from importlib.metadata import version

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model.caches import select_rows
from site_interp.model.fingerprint import PROBE_TEXTS
from site_interp.model.model import Model
from site_interp.model.padding import pad_left

# Largest difference between cached and uncached logits, as a share of the largest logit. A broken cache is off by more
# than a tenth in any precision; fp32 rounding stays below 1e-5.
CACHE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}


@torch.no_grad()
def check_at_load(model: Model) -> Float[Tensor, "text layer head d_head"]:
    """Run the probe texts with and without the cache: z has its shape, both give the same logits, all is finite.

    Returns:
        z of their last tokens, fp32 on the CPU.

    Raises:
        UserError: The model fails.
    """
    ids, mask = pad_left([model.token_ids(text) for text in PROBE_TEXTS], model.device)
    seen: dict[int, Tensor] = {}
    hooks = [(model.hook_z(layer), lambda z, layer=layer: seen.__setitem__(layer, z[:, -1])) for layer in
             range(model.n_layers)]  # fmt: skip
    bridged = model.bridged()  # a user's forwards run the bridge, most of ours its lean form: both count
    uncached, _ = bridged.forward(ids, mask, n_logits=1)
    _, cache = bridged.forward(ids[:, :-1], mask[:, :-1], n_logits=1)
    bridged_cached, _ = bridged.forward(ids[:, -1:], mask, select_rows(cache), n_logits=1)
    with model.hooked(hooks):
        lean_cached, _ = model.forward(ids[:, -1:], mask, model.prefill(ids[:, :-1], mask[:, :-1]), n_logits=1)
    cached = torch.stack([bridged_cached, lean_cached])
    versions = ", ".join(f"{package} {version(package)}" for package in ("transformers", "transformer-lens", "torch"))
    problem = None
    shape = (len(PROBE_TEXTS), model.n_heads, model.d_head)
    if wrong := [layer for layer in range(model.n_layers) if tuple(seen[layer].shape) != shape]:
        problem = f"hook_z of layer {wrong[0]} has shape {tuple(seen[wrong[0]].shape)} instead of {shape}"
    elif not (uncached.isfinite().all() and cached.isfinite().all()):
        problem = "its logits are not finite"
    else:
        deviation = float((cached - uncached).abs().max() / uncached.abs().max().clamp(min=1e-6))
        if deviation > CACHE_TOLERANCE[model.dtype]:
            problem = f"logits with the key/value cache differ from those without it by {deviation:.1%}"
    if problem:
        raise UserError(
            f"Model {model.name!r} failed the check at load: {problem} ({versions}). Install the pinned versions "
            "(constraints.txt): transformers 5.24 and later break cached decoding under TransformerLens 4.3."
        )
    return torch.stack([seen[layer].float() for layer in range(model.n_layers)], dim=1).cpu()
