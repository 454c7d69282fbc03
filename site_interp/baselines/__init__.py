"""Methods: one file each, all through the same fit, evaluate and save."""

from site_interp.baselines.floors import Echo, Majority
from site_interp.baselines.function_vector import FunctionVector
from site_interp.baselines.i2cl import I2CL, I2CLFitted
from site_interp.baselines.icl import ICL
from site_interp.baselines.knn import KNN, TRIGRAMS, Similarity
from site_interp.baselines.load import Kept, load_fitted
from site_interp.baselines.lora import IA3, LoRA
from site_interp.baselines.ltv import LTV
from site_interp.baselines.many_shot import ManyShotICL
from site_interp.baselines.method import ChangesModel, FitsTogether, Fitted, FixedAnswers, Method
from site_interp.baselines.mtv import MTV
from site_interp.baselines.named import METHOD_CLASSES, METHOD_NAMES, known_methods, named_method
from site_interp.baselines.peft_fit import PeftFitted
from site_interp.baselines.saved import SavedSITE
from site_interp.baselines.site import DEFAULT, PRESETS, SITE
from site_interp.baselines.steered import Steered
from site_interp.baselines.task_vector import TaskVector
from site_interp.baselines.zero_shot import ZeroShot

__all__ = [
    "DEFAULT",
    "I2CL",
    "IA3",
    "ICL",
    "KNN",
    "LTV",
    "METHOD_CLASSES",
    "METHOD_NAMES",
    "MTV",
    "PRESETS",
    "SITE",
    "TRIGRAMS",
    "ChangesModel",
    "Echo",
    "FitsTogether",
    "Fitted",
    "FixedAnswers",
    "FunctionVector",
    "I2CLFitted",
    "Kept",
    "LoRA",
    "Majority",
    "ManyShotICL",
    "Method",
    "PeftFitted",
    "SavedSITE",
    "Similarity",
    "Steered",
    "TaskVector",
    "ZeroShot",
    "known_methods",
    "load_fitted",
    "named_method",
]
