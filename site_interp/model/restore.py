"""Giving a caller's Hugging Face model back as it was: a bridge replaces its submodules and leaves hooks on them."""

import copy
from collections.abc import Callable
from typing import Any


def remember(inner: Any) -> Callable[[], None]:
    """What a caller's model is like now, as a function that makes it so again: the first call does, later ones nothing.

    Modules, parameters, buffers, hooks, modes, gradient flags and attention stand again as they stood; values of
    parameters are not kept.
    """
    attributes = {module: dict(vars(module)) for module in inner.modules()}
    # Submodules, buffers and hooks stand in containers that change in place, and must be put right in place: a caller's
    # handle removes its hook from that very container.
    contents = [
        (held, copy.copy(held)) for own in attributes.values() for held in own.values()
        if isinstance(held, dict | list | set)
    ]  # fmt: skip
    gradients = [(parameter, parameter.requires_grad) for parameter in inner.parameters()]
    attention, architectures = inner.config._attn_implementation, inner.config.architectures

    def restore() -> None:
        if not attributes:
            return
        while attributes:
            module, own = attributes.popitem()
            module.__dict__.clear()
            module.__dict__.update(own)
        for held, content in contents:
            held.clear()
            held.extend(content) if isinstance(held, list) else held.update(content)
        for parameter, flag in gradients:
            parameter.requires_grad_(flag)
        inner.config._attn_implementation = attention
        inner.config.architectures = architectures

    return restore
