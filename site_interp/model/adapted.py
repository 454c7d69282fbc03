"""Weights changed by peft, for the length of a `with` block: the one place that knows peft."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from site_interp.errors import UserError
from site_interp.model.lean import Lean, bare
from site_interp.model.linear import quick_linear
from site_interp.model.model import Model
from site_interp.model.restore import remember

LORA_TARGETS = {"mixtral": ("q_proj", "v_proj")}  # where peft looks for its experts' fused weights instead


@contextmanager
def peft_modules(model: Model, kind: str, settings: Mapping[str, Any], *, seed: int = 0) -> Iterator[Model]:
    """The model with a peft adapter in it, as its own modules without the bridge; exactly as before afterwards.

    Inside, only the adapter's parameters ask for gradients. Hooks on z do not exist there.

    Args:
        model: Nobody's hooks may be on it.
        kind: `lora` or `ia3`.
        settings: Arguments of peft's configuration; without `target_modules` peft's own choice for the architecture.
        seed: Of the adapter's first values.

    Yields:
        A model whose forwards run with the adapter.

    Raises:
        UserError: peft is not installed, an injection is under way, or peft does not know the architecture.
    """
    try:
        import peft
    except ImportError:
        raise UserError(
            f"Cannot fit {kind}: the package peft is not installed. Install it with: pip install 'site-interp[peft]'."
        ) from None
    if model.is_watched:
        raise UserError(
            f"Cannot fit {kind} inside an inject block: the bridge is left out here. Leave the block first."
        )
    import torch

    inner = model.inner
    with bare(model.bridge, model.lean):
        restore = remember(inner)
        try:
            chosen = dict(settings)
            if kind == "lora" and (targets := LORA_TARGETS.get(inner.config.model_type)):
                chosen.setdefault("target_modules", list(targets))
            config = {"lora": peft.LoraConfig, "ia3": peft.IA3Config}[kind](task_type="CAUSAL_LM", **chosen)
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="fan_in_fan_out")  # peft corrects it by itself
                torch.manual_seed(seed)
                try:
                    peft.inject_adapter_in_model(config, inner)
                except ValueError as error:
                    raise UserError(f"Cannot fit {kind} on {model.name}: {error}") from None
            inner.eval()
            _quicken(inner)
            yield replace(model, lean=Lean(config=inner.config, attention=model.lean.attention, bare=True))
        finally:
            restore()


def peft_parameters(model: Model) -> dict[str, Any]:
    """The adapter's parameters by name, inside `peft_modules`."""
    return {name: value for name, value in model.inner.named_parameters() if value.requires_grad}


def load_peft_parameters(model: Model, values: Mapping[str, Tensor]) -> None:
    """Put values into the adapter, inside `peft_modules`.

    Raises:
        UserError: Names or shapes that are not the adapter's.
    """
    own = peft_parameters(model)
    shapes = {name: tuple(value.shape) for name, value in values.items()}
    if shapes != {name: tuple(value.shape) for name, value in own.items()}:
        raise UserError(
            f"Cannot put this adapter into {model.name}: its {len(shapes)} tensors are not those of the model's "
            f"{len(own)} adapted modules. Use it with its own model and settings."
        )
    for name, parameter in own.items():
        parameter.data.copy_(values[name])


def _quicken(inner: Any) -> None:
    """Frozen linear layers, those inside peft's as well, run as they do elsewhere in this package."""
    for module in list(inner.modules()):
        for name, child in module._modules.items():
            frozen = child is not None and not any(parameter.requires_grad for parameter in child.parameters())
            if frozen and (quick := quick_linear(child)) is not None:
                module._modules[name] = quick
