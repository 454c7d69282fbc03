"""The seam to TransformerLens and transformers: everything that knows a backend is in this folder."""

from site_interp.model.adapted import load_peft_parameters, peft_modules, peft_parameters
from site_interp.model.branches import forward_branches
from site_interp.model.bundled import bundled_models, is_cached
from site_interp.model.caches import expand_rows, join_caches, select_rows
from site_interp.model.decode import decode_greedy
from site_interp.model.fingerprint import Fingerprint
from site_interp.model.load import load_model
from site_interp.model.model import Call, Hook, Model
from site_interp.model.padding import pad_left
from site_interp.model.readout import project_heads, token_spans, token_text, unembed
from site_interp.model.tokenizer import answer_ids, load_tokenizer

__all__ = [
    "Call",
    "Fingerprint",
    "Hook",
    "Model",
    "answer_ids",
    "bundled_models",
    "decode_greedy",
    "expand_rows",
    "forward_branches",
    "is_cached",
    "join_caches",
    "load_model",
    "load_peft_parameters",
    "load_tokenizer",
    "pad_left",
    "peft_modules",
    "peft_parameters",
    "project_heads",
    "select_rows",
    "token_spans",
    "token_text",
    "unembed",
]
