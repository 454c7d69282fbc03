"""The folder of a fitted method: its numbers in a safetensors file, everything else in a JSON file."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from site_interp.adapter_files import CONFIG_NAME, FORMAT_VERSION, WEIGHTS_NAME, read_files, write_files
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.provenance import Provenance, check_model

PACKAGES = ("site-interp", "torch", "transformer-lens", "transformers", "peft")  # their versions are kept
T = TypeVar("T")


def write_fitted(
    folder: str | Path, name: str, origin: Provenance, tensors: Mapping[str, Tensor], config: Mapping[str, Any]
) -> None:
    """Write a fitted method to a folder, whole or not at all.

    Args:
        folder: Made if needed; what is there is replaced.
        name: The method's name.
        origin: Where it comes from.
        tensors: Its numbers.
        config: Everything else, as JSON values; the fields above stay as they are.

    Raises:
        UserError: The folder cannot be written.
    """
    own = {
        **origin.to_dict(),
        "format_version": FORMAT_VERSION,
        "method": name,
        "versions": {package: found for package in PACKAGES if (found := _version(package))},
    }
    plain = {key: value.detach().float().cpu().contiguous() for key, value in tensors.items()}
    write_files(Path(folder), plain, {**config, **own})


def read_fitted(
    folder: str | Path,
    model: Model | None,
    build: Callable[[Mapping[str, Any], Mapping[str, Tensor], Provenance], T],
) -> T:
    """Read a fitted method back.

    Args:
        folder: Where `write_fitted` wrote it.
        model: If given, it must have been made with this model.
        build: Makes the value of its configuration, numbers and origin.

    Raises:
        UserError: Missing, damaged or mismatched files, another kind of method, or one of another model.
    """
    doing = f"Cannot load a fitted method from {folder}"
    config, tensors = read_files(Path(folder), doing)
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise UserError(f"{doing}: {WEIGHTS_NAME} holds values that are not finite. Fit it again in float32.")
    try:
        origin = Provenance.from_dict(config)
        read = build(config, tensors, origin)
    except UserError as error:
        raise UserError(f"{doing}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{doing}: its {CONFIG_NAME} lacks or spoils a field ({error}). Save it again.") from None
    if model is not None:
        check_model(origin, model, f"{config['method']} adapter")
    return read


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
