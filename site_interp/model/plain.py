"""The same files through plain transformers, without TransformerLens: what the self-test compares with.

Weights and tokenizer are loaded anew, with the library's own defaults, so that nothing is shared with `load_model`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model.bundled import bundled_model_path, bundled_models
from site_interp.model.load import _Quiet
from site_interp.model.model import Model


def plain_token_ids(model: Model, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts as `AutoTokenizer` of the model's own files makes them.

    Raises:
        UserError: The model's name leads to no files.
    """
    from transformers import AutoTokenizer

    tokenizer = _load(AutoTokenizer, model)
    return [tokenizer(text).input_ids for text in texts]


@torch.no_grad()
def plain_log_probs(model: Model, rows: Sequence[Sequence[int]], *, n_last: int) -> list[Float[Tensor, "pos d_vocab"]]:
    """Log-probabilities after the last tokens of each row, by `AutoModelForCausalLM`: one row at a time, no cache.

    The weights are in memory a second time while this runs.

    Args:
        model: Says which files, and on what device and in what precision.
        rows: Token ids of each prompt.
        n_last: How many positions to keep, counted from the end; shorter rows keep all.

    Returns:
        One tensor per row, fp32 on the model's device.

    Raises:
        UserError: The model's name leads to no files.
    """
    from transformers import AutoModelForCausalLM

    inner = _load(AutoModelForCausalLM, model, dtype=model.dtype).to(model.device).eval()
    ids = [torch.tensor([list(row)], device=model.device) for row in rows]
    return [inner(row, use_cache=False).logits[0, -n_last:].float().log_softmax(dim=-1) for row in ids]


def sliding_window(model: Model) -> int | None:
    """Tokens that a layer with a sliding window sees; None where every layer sees all."""
    config = model.inner.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and "sliding_attention" not in kinds:
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window


def _load(kind: Any, model: Model, **options: Any) -> Any:
    name = str(bundled_model_path(model.name)) if model.name in bundled_models() else model.name
    try:
        with _Quiet():
            return kind.from_pretrained(name, revision=model.revision, **options)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"Cannot load {model.name!r} again without TransformerLens ({reason}). Give load_model a name or folder."
        ) from None
