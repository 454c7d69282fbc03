"""Reading any fitted method back."""

from pathlib import Path

from site_interp.adapter import Adapter
from site_interp.adapter_files import read_files
from site_interp.baselines.i2cl import I2CL, I2CLFitted
from site_interp.baselines.lora import IA3, LoRA
from site_interp.baselines.peft_fit import PeftFitted
from site_interp.baselines.site import SITE
from site_interp.baselines.steered import Steered
from site_interp.model import Model

Kept = Adapter | Steered | PeftFitted | I2CLFitted
"""A fitted method that can be saved and read back."""


def load_fitted(folder: str | Path, model: Model | None = None) -> Kept:
    """Read a fitted method back, whichever it is.

    Args:
        folder: Where its `save_pretrained`, or a run, wrote it.
        model: If given, it must have been made with this model.

    Raises:
        UserError: Missing, damaged or mismatched files, or a method of another model.

    Example:
        evaluate(model, task, [load_fitted("runs/mine/adapters/lora__bundled-antonym__seed-0", model)])
    """
    config, _ = read_files(Path(folder), f"Cannot load a fitted method from {folder}")
    match config.get("method"):
        case SITE.name:
            return Adapter.from_pretrained(folder, model)
        case LoRA.name | IA3.name:
            return PeftFitted.from_pretrained(folder, model)
        case I2CL.name:
            return I2CLFitted.from_pretrained(folder, model)
    return Steered.from_pretrained(folder, model)
