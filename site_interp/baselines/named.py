"""Methods by name, with settings as text: `lora:lr=0.003,rank=4`."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from site_interp.baselines.floors import Echo, Majority
from site_interp.baselines.function_vector import FunctionVector
from site_interp.baselines.i2cl import I2CL
from site_interp.baselines.icl import ICL
from site_interp.baselines.knn import KNN
from site_interp.baselines.lora import IA3, LoRA
from site_interp.baselines.ltv import LTV
from site_interp.baselines.many_shot import ManyShotICL
from site_interp.baselines.method import Method
from site_interp.baselines.mtv import MTV
from site_interp.baselines.site import SITE
from site_interp.baselines.task_vector import TaskVector
from site_interp.baselines.zero_shot import ZeroShot
from site_interp.errors import UserError, did_you_mean
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.prompts import QA, Template
from site_interp.selection import FitSettings
from site_interp.tasks import Task

METHOD_CLASSES: tuple[type[Any], ...] = (
    ZeroShot, ICL, ManyShotICL, SITE, FunctionVector, TaskVector, MTV, I2CL, LTV, LoRA, IA3, KNN, Majority, Echo,
)  # fmt: skip
NOT_TEXT = ("memory", "template", "fitting", "similarity", "donors")  # given otherwise
METHOD_NAMES: tuple[str, ...] = tuple(one.name for one in METHOD_CLASSES)


def known_methods(
    *,
    n_shots: int,
    n_prompts: int,
    fitting: FitSettings,
    template: Template = QA,
    memory: int = DEFAULT_MEMORY,
    donors: tuple[Task, ...] = (),
) -> dict[str, Method]:
    """Every method by name. Shots, prompts and fit settings are SITE's; ICL and LTV share what they have of them.

    `donors` are the tasks whose embeddings `site:target=other` and `site:target=mean` take.
    """
    shared: dict[str, Any] = {"template": template, "memory": memory}
    own: dict[str, dict[str, Any]] = {
        "icl": {"n_shots": n_shots},
        "site": {"n_shots": n_shots, "n_prompts": n_prompts, "fitting": fitting, "donors": donors},
        "ltv": {"n_shots": n_shots, "n_prompts": n_prompts},
    }
    made = {}
    for one in METHOD_CLASSES:
        names = {field.name for field in fields(one)}
        given = {name: value for name, value in shared.items() if name in names} | own.get(one.name, {})
        made[one.name] = one(**given)
    return made


def named_method(text: str, known: Mapping[str, Method]) -> Method:
    """A method of a name, with settings behind a colon.

    Args:
        text: `NAME` or `NAME:setting=value,...`; those of SITE's fit (`mixing`, `init`, `per`, `loss`, `n_steps`, ...)
            stand beside its own.
        known: Methods to begin with, by name.

    Raises:
        UserError: An unknown method or setting, or a value of another kind.

    Example:
        >>> methods = known_methods(n_shots=10, n_prompts=50, fitting=FitSettings())
        >>> named_method("site:mixing=add,n_shots=5", methods).variant()
        'mixing=add,n_shots=5'
    """
    name, _, settings = text.partition(":")
    if name not in known:
        raise UserError(f"Cannot find the method {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    method = known[name]
    for part in filter(None, settings.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"Cannot read the setting {part!r} of {name}: write it as name=value.")
        method = _with(method, key.strip(), value.strip())
    return method


def _with(method: Any, key: str, text: str) -> Any:
    """The method with one setting changed."""
    inner = "fitting" if isinstance(method, SITE) and key in vars(method.fitting) else None
    owner = method.fitting if inner else method
    settable = [field.name for field in fields(method) if field.name not in NOT_TEXT]
    if isinstance(method, SITE):
        settable += [field.name for field in fields(method.fitting)]
    if key not in settable:
        there = ", ".join(settable) or "none"
        raise UserError(f"Cannot set {key!r} of {method.name}: it has {there}.{did_you_mean(key, settable)}")
    before = getattr(owner, key)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    kinds = (int, float) if isinstance(before, float) else (type(before),)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UserError(f"Cannot set {key} of {method.name} to {text!r}: it must be like {before!r}.")
    changed = replace(owner, **{key: value})
    return replace(method, fitting=changed) if inner else changed
