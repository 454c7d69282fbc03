"""Exemplar soft prompts: retrieved examples encoded into a few vectors that stand in the prompt (arXiv 2510.05363)."""

from site_interp.exemplars.encoded import Encoded, PromptEncoder
from site_interp.exemplars.idpg import IDPG
from site_interp.exemplars.mha_esp import MHAESP
from site_interp.exemplars.p_esp import PESP
from site_interp.exemplars.prompt_tuning import PromptTuning
from site_interp.exemplars.u_esp import UESP

__all__ = ["IDPG", "MHAESP", "PESP", "UESP", "Encoded", "PromptEncoder", "PromptTuning"]
