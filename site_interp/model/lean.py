"""The model's own modules in place of the bridge's, for forwards in which nobody looks at more than z.

A bridge wraps every module and computes attention step by step, so that each value has a hook point. Nearly all
forwards of this package hook z alone: they run the model's own modules, with the bridge's output projection, where
hook_z fires, in its place in each layer. The numbers are the same (checked at load); the wrapping costs time in every
step, and attention step by step costs more the longer the prompt is.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from site_interp.model.linear import quick_linear


@dataclass(frozen=True)
class Lean:
    """How to run a bridged model without the bridge.

    Args:
        swaps: (container of submodules, name there, the bridge's module, the one to run); empty where z would be lost.
        missed: The hooks, now and later, of the bridge's modules that do not run: they would not fire.
        config: The inner model's configuration, which names the attention function.
        attention: The attention function to run with.
        taps: By hook point, the model's own module whose output it is; these run with and without the bridge, those of
            attention without it only.
        bare: The model's own modules stand in their places already (inside `bare`).
    """

    swaps: tuple[tuple[dict[str, Any], str, Any, Any], ...] = ()
    missed: tuple[dict[int, Any], ...] = ()
    config: Any = None
    attention: str = "eager"
    taps: Mapping[str, Any] = field(default_factory=dict)
    bare: bool = False

    @property
    def serves(self) -> bool:
        """Whether nothing would be missed: the model has a lean form, and only z is hooked."""
        return self.bare or (bool(self.swaps) and all(map(_is_own, filter(None, self.missed))))

    @contextmanager
    def running(self) -> Iterator[None]:
        """The model's own modules stand in their places inside the block, the bridge's again afterwards."""
        before = self.config._attn_implementation
        try:
            self.config._attn_implementation = self.attention
            for container, name, _, own in self.swaps:
                container[name] = own
            yield
        finally:
            for container, name, bridged, _ in self.swaps:
                container[name] = bridged
            self.config._attn_implementation = before


def _is_own(hooks: dict[int, Any]) -> bool:
    """Whether the bridge itself put all these hooks on one of its components."""
    return all(getattr(hook, "__module__", "").startswith("transformer_lens.model_bridge") for hook in hooks.values())


def find_lean(bridge: Any, projections: Sequence[Any]) -> Lean:
    """The lean form of a bridged model.

    Args:
        bridge: The bridge.
        projections: The bridge's output projection of each layer, whose input is z.
    """
    inner = bridge.original_model
    bridged = {id(projection.original_component): projection for projection in projections}
    swaps, kept, waiting = [], [], [inner]
    while waiting:
        container = waiting.pop()._modules
        for name, module in container.items():
            own = getattr(module, "original_component", None) or module
            runs = bridged.get(id(own)) or quick_linear(own) or own
            if runs is not module:
                swaps.append((container, name, module, runs))
            if id(own) in bridged:
                kept.append(runs)
                if quick := quick_linear(own):
                    swaps.append((runs._modules, "_original_component", own, quick))
            elif own is not None:
                waiting.append(own)
    if len(kept) != len(projections):
        return Lean()
    attention = "sdpa" if inner._supports_sdpa else "eager"
    lean = Lean(tuple(swaps), (), inner.config, attention, _taps(bridge))
    with lean.running():
        running = set(inner.modules())
    left = [module for module in bridge.modules() if module not in running]
    missed = [hooks for m in left for hooks in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks)]
    return replace(lean, missed=tuple(missed))


def _taps(bridge: Any) -> dict[str, Any]:
    """The own modules behind the points where a layer, its attention and its MLP put out."""
    taps = {}
    for layer, block in enumerate(bridge.blocks):
        taps[f"blocks.{layer}.hook_resid_post"] = block.original_component
        for point in ("hook_attn_out", "hook_mlp_out"):
            # Where a norm follows (Gemma), what is added to the residual stream comes out of the norm.
            component = block.hook_aliases[point].removesuffix(".hook_out")
            taps[f"blocks.{layer}.{point}"] = getattr(block, component).original_component
    return taps


@contextmanager
def bare(bridge: Any, lean: Lean) -> Iterator[None]:
    """The model without any part of the bridge inside the block: its own modules, as the library made them."""
    inner = bridge.original_model
    swaps, waiting = [], [inner]
    while waiting:
        container = waiting.pop()._modules
        for name, module in container.items():
            own = getattr(module, "original_component", None) or module
            if own is not module:
                swaps.append((container, name, module, own))
            if own is not None:
                waiting.append(own)
    with Lean(tuple(swaps), (), inner.config, lean.attention).running():
        yield
