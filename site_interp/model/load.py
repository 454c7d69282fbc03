"""Getting a `Model`: from a bundled name, a Hugging Face id or folder, or an object the caller has; checked at load."""

import copy
import difflib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from site_interp.errors import UserError, did_you_mean
from site_interp.model.bundled import bundled_model_path, bundled_models
from site_interp.model.check import check_at_load
from site_interp.model.fingerprint import (
    N_PROBE_VALUES,
    Fingerprint,
    probe_heads,
    tokenizer_hash,
    weights_hash,
)
from site_interp.model.lean import find_lean
from site_interp.model.model import Model
from site_interp.model.restore import remember

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(
    source: Any = "smollm2-135m",
    *,
    device: str = "auto",
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    tokenizer: Any = None,
    check: bool = True,
) -> Model:
    """A model ready for prefixes, injection and fitting.

    Args:
        source: A bundled name (`smollm2-135m`, `gemma-3-270m`), a Hugging Face id, a folder, a TransformerLens bridge,
            or a Hugging Face model. An object of the caller is given back as it was by `close()`.
        device: `auto` takes CUDA where it is, otherwise the CPU; ignored for an object of the caller.
        dtype: `float32`, `bfloat16` or `float16`; by default fp32 on the CPU and bf16 on a GPU.
        revision: Revision of a Hugging Face id.
        tokenizer: For an object of the caller, where its own files do not say which.
        check: False leaves out the check at load and the fingerprint, for the self-test, which shows what is wrong.

    Raises:
        UserError: Unknown name, unreachable files, no such device, or a model that fails the check at load.

    Example:
        model = load_model("smollm2-135m")
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, str | Path):
        place = _device(device)
        wanted = _dtype(dtype, place)
        inner, tokenizer, name = _from_files(str(source), place, wanted, revision, tokenizer)
        bridge = _boot(inner, tokenizer, name)
        return _checked(bridge, tokenizer, str(source), revision, lambda: None, check=check)
    return _from_object(source, tokenizer, revision, check=check)


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda", "mps"):
        raise UserError(f"Cannot use device {device!r}: it is no device to run on. Use 'auto', 'cpu' or 'cuda'.")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"Cannot use device {device!r}: this machine or this build of torch has no CUDA. Use 'cpu'.")
    try:
        torch.empty(1, device=place)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(f"Cannot use device {device!r}: {reason}. Use 'cpu'.") from None
    return place


def _dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    wanted = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if wanted is None or wanted not in DTYPES.values():
        raise UserError(f"Cannot load a model as {dtype!r}: use one of {', '.join(DTYPES)}.")
    return wanted


def _from_files(
    name: str, device: torch.device, dtype: torch.dtype, revision: str | None, tokenizer: Any
) -> tuple[Any, Any, str]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    refuse_misspelt(name)
    folder = str(bundled_model_path(name)) if name in bundled_models() else name
    try:
        with _Quiet():
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(folder, revision=revision)
            inner = AutoModelForCausalLM.from_pretrained(
                folder, revision=revision, dtype=dtype, attn_implementation="eager"
            )
    except (OSError, ValueError, SafetensorError) as error:
        raise unreachable(name, error, folder) from None
    return inner.to(device).eval(), tokenizer, folder  # type: ignore[arg-type]


def refuse_misspelt(name: str) -> None:
    """Refuse no name, and what is nearly a bundled one and no folder, before the hub is asked for it again and again.

    Raises:
        UserError: Names the bundled one.
    """
    known = bundled_models()
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    if not name.strip() or (near and near[0] != name and "/" not in name and not Path(name).exists()):
        hint = f"Did you mean {near[0]}?" if near else "Give a bundled name, a folder or a Hugging Face id."
        raise UserError(f"Cannot load the model {name!r}: bundled are {', '.join(known)}. {hint}")


def unreachable(name: str, error: Exception, folder: str) -> UserError:
    """The refusal of files that cannot be read, or of a name under which none are found, with the nearest names."""
    reason = str(error).strip().splitlines()[0]
    if (Path(folder) / "config.json").is_file():
        cure = f"Remove {folder}, and it is fetched again" if name in bundled_models() else "Copy or fetch it again"
        return UserError(f"Cannot load the model {name!r}: its files are damaged or incomplete ({reason}). {cure}.")
    return UserError(
        f"Cannot load the model {name!r}: it is neither bundled ({', '.join(bundled_models())}), nor a readable "
        f"folder, nor a Hugging Face id within reach ({reason}).{did_you_mean(name, bundled_models())}"
    )


def _boot(inner: Any, tokenizer: Any, name: str) -> Any:
    from transformer_lens.model_bridge import TransformerBridge

    if not getattr(inner.config, "architectures", None):
        inner.config.architectures = [type(inner).__name__]  # the bridge chooses its adapter by this field
    with _Quiet():
        return TransformerBridge.boot_transformers(
            name, hf_model=inner, tokenizer=copy.deepcopy(tokenizer), dtype=inner.dtype, device=inner.device
        )


def _from_object(source: Any, tokenizer: Any, revision: str | None, *, check: bool) -> Model:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer, PreTrainedModel

    if isinstance(source, TransformerBridge):
        inner, name = source.original_model, str(source.cfg.model_name)
    elif isinstance(source, PreTrainedModel):
        inner, name = source, str(source.config._name_or_path or type(source).__name__)
    else:
        raise UserError(
            f"Cannot use a {type(source).__name__} as a model: give a name, a folder, a TransformerLens bridge or a "
            "Hugging Face model."
        )
    restore = remember(inner)
    try:
        if tokenizer is None:
            with _Quiet():
                tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
        bridge = source if isinstance(source, TransformerBridge) else _boot(inner.eval(), tokenizer, name)
        inner.eval()
        return _checked(bridge, tokenizer, name, revision, restore, check=check)
    except BaseException as error:
        restore()
        if isinstance(error, OSError):
            raise UserError(
                f"Cannot find the tokenizer of {name!r}. Pass it: load_model(model, tokenizer=...)."
            ) from None
        raise


class _Quiet:
    """Silence progress bars and warnings of loading; errors still come through."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self._bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *_: object) -> None:
        from transformers.utils import logging

        self._warnings.__exit__(None, None, None)
        if self._bars:
            logging.enable_progress_bar()


def _checked(
    bridge: Any, tokenizer: Any, name: str, revision: str | None, restore: Callable[[], None], *, check: bool
) -> Model:
    """Build the Model, run the check and take its fingerprint."""
    cfg, inner = bridge.cfg, bridge.original_model
    config = inner.config.get_text_config()
    model = Model(
        name=name,
        bridge=bridge,
        tokenizer=tokenizer,
        n_layers=cfg.n_layers,
        n_heads=cfg.n_heads,
        d_head=cfg.d_head,
        d_model=cfg.d_model,
        d_vocab=cfg.d_vocab,
        n_ctx=cfg.n_ctx,
        n_kv_heads=getattr(config, "num_key_value_heads", None) or cfg.n_heads,
        device=inner.device,
        dtype=inner.dtype,
        fingerprint=Fingerprint({}, "", "", ()),
        revision=revision,
        restore=restore,
        lean=find_lean(bridge, [bridge.blocks[layer].attn.o for layer in range(cfg.n_layers)]),
    )
    if not check:
        return model
    z = check_at_load(model)
    values = [z[text, layer, head, :N_PROBE_VALUES] for text in range(len(z)) for layer, head in
              probe_heads(model.n_layers, model.n_heads)]  # fmt: skip
    fingerprint = Fingerprint(
        architecture={
            "type": inner.config.model_type,
            **{key: getattr(model, key) for key in ("n_layers", "n_heads", "d_head", "d_model", "d_vocab")},
        },
        tokenizer=tokenizer_hash(tokenizer),
        weights=weights_hash(inner.parameters()),
        probe=tuple(round(value, 5) for value in torch.cat(values).tolist()),
    )
    return replace(model, fingerprint=fingerprint)
