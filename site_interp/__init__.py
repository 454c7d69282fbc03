"""Find the attention heads a task lives in, and switch the task on without a prompt.

The pipeline:

    Task -> prompts -> Prefixes -> z at the last token -> TaskEmbedding -> alpha (one-token steps) -> Adapter
         -> injected logits / text -> scores per example -> results + intervals -> figures

One intervention underlies everything, at the last prompt position, for layer l and head h:

    z[l, h]  <-  lerp(z[l, h], target[l, h], alpha[l, h])

Axis words, the same in every signature, table and figure: task, batch (one row per prompt), pos, layer, head, d_head,
d_model, d_vocab, step. Symbols: z (a head's output before W_O), target (what it is moved towards), alpha (how far, in
[0, 1]), logits, answers.

Names are imported when they are first used: `import site_interp` itself loads neither torch nor TransformerLens.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from site_interp import plots
    from site_interp.adapter import Adapter
    from site_interp.baselines import (
        I2CL,
        IA3,
        ICL,
        KNN,
        LTV,
        MTV,
        SITE,
        Echo,
        FunctionVector,
        LoRA,
        Majority,
        ManyShotICL,
        TaskVector,
        ZeroShot,
        load_fitted,
    )
    from site_interp.doctor import Check, check_model
    from site_interp.embedding import TaskEmbedding, embed_task
    from site_interp.errors import UserError
    from site_interp.evaluation import evaluate
    from site_interp.experiments.overlap import overlap, seed_stability
    from site_interp.experiments.patch import rankings
    from site_interp.experiments.patch_figures import curve_panel
    from site_interp.experiments.transfer import TransferSettings
    from site_interp.experiments.transfer_summary import transfer
    from site_interp.fitting import fit_selection
    from site_interp.generation import generate, inject
    from site_interp.injection import Intervention, injecting
    from site_interp.model import Model, load_model
    from site_interp.patching import (
        CurveSet,
        HeadEffects,
        attention_by_role,
        attribute_heads,
        embedding_spread,
        head_scores,
        head_writes,
        icl_ablation_curves,
        necessity_curves,
        rank_heads,
        sufficiency_curves,
        sweep_heads,
    )
    from site_interp.prefixes import Prefixes, encode_prompts
    from site_interp.prompts import Template, load_template
    from site_interp.selection import FitSettings, HeadSelection
    from site_interp.task_checks import check_named
    from site_interp.tasks import Example, Labelled, Task, list_tasks, load_suite, load_task

_HOMES = {
    "Adapter": "adapter",
    "Check": "doctor",
    "CurveSet": "patching",
    "Echo": "baselines",
    "Example": "tasks",
    "FitSettings": "selection",
    "FunctionVector": "baselines",
    "HeadEffects": "patching",
    "HeadSelection": "selection",
    "I2CL": "baselines",
    "IA3": "baselines",
    "ICL": "baselines",
    "Intervention": "injection",
    "KNN": "baselines",
    "LTV": "baselines",
    "Labelled": "tasks",
    "LoRA": "baselines",
    "MTV": "baselines",
    "Majority": "baselines",
    "ManyShotICL": "baselines",
    "Model": "model",
    "Prefixes": "prefixes",
    "SITE": "baselines",
    "Task": "tasks",
    "TaskEmbedding": "embedding",
    "TaskVector": "baselines",
    "Template": "prompts",
    "TransferSettings": "experiments.transfer",
    "UserError": "errors",
    "ZeroShot": "baselines",
    "attention_by_role": "patching",
    "attribute_heads": "patching",
    "check_model": "doctor",
    "check_named": "task_checks",
    "curve_panel": "experiments.patch_figures",
    "embed_task": "embedding",
    "embedding_spread": "patching",
    "encode_prompts": "prefixes",
    "evaluate": "evaluation",
    "fit_selection": "fitting",
    "generate": "generation",
    "head_scores": "patching",
    "head_writes": "patching",
    "icl_ablation_curves": "patching",
    "inject": "generation",
    "injecting": "injection",
    "list_tasks": "tasks",
    "load_fitted": "baselines",
    "load_model": "model",
    "load_suite": "tasks",
    "load_task": "tasks",
    "load_template": "prompts",
    "necessity_curves": "patching",
    "overlap": "experiments.overlap",
    "rank_heads": "patching",
    "rankings": "experiments.patch",
    "seed_stability": "experiments.overlap",
    "sufficiency_curves": "patching",
    "sweep_heads": "patching",
    "transfer": "experiments.transfer_summary",
}
__all__ = [
    "I2CL",
    "IA3",
    "ICL",
    "KNN",
    "LTV",
    "MTV",
    "SITE",
    "Adapter",
    "Check",
    "CurveSet",
    "Echo",
    "Example",
    "FitSettings",
    "FunctionVector",
    "HeadEffects",
    "HeadSelection",
    "Intervention",
    "Labelled",
    "LoRA",
    "Majority",
    "ManyShotICL",
    "Model",
    "Prefixes",
    "Task",
    "TaskEmbedding",
    "TaskVector",
    "Template",
    "TransferSettings",
    "UserError",
    "ZeroShot",
    "attention_by_role",
    "attribute_heads",
    "check_model",
    "check_named",
    "curve_panel",
    "embed_task",
    "embedding_spread",
    "encode_prompts",
    "evaluate",
    "fit_selection",
    "generate",
    "head_scores",
    "head_writes",
    "icl_ablation_curves",
    "inject",
    "injecting",
    "list_tasks",
    "load_fitted",
    "load_model",
    "load_suite",
    "load_task",
    "load_template",
    "necessity_curves",
    "overlap",
    "plots",
    "rank_heads",
    "rankings",
    "seed_stability",
    "sufficiency_curves",
    "sweep_heads",
    "transfer",
]


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("site_interp.plots")
    if name not in _HOMES:
        raise AttributeError(f"module 'site_interp' has no attribute {name!r}")
    return getattr(import_module(f"site_interp.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
