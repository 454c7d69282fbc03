"""The two files of an adapter folder, replaced so that the folder holds one whole adapter at every moment.

What the parts of an adapter mean is not known here.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from site_interp.errors import UserError
from site_interp.files import write_atomically, writing

FORMAT_VERSION = 1
WEIGHTS_NAME = "adapter.safetensors"
CONFIG_NAME = "adapter_config.json"
KEPT = f".{WEIGHTS_NAME}.kept-"  # weights of the adapter that is being replaced, with their hash behind


def write_files(folder: Path, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> None:
    """Put an adapter into a folder, in place of one that is there.

    The configuration names the hash of its weights, and the old weights are kept under theirs until it is replaced:
    whatever stops the writing, `read_files` finds the old adapter or the new one.

    Raises:
        UserError: The folder cannot be written, or holds a configuration of another program; it is then as it was.
        ValueError, TypeError: The configuration is no standard JSON; nothing was written.
    """
    weights = save_tensors(dict(tensors))
    text = json.dumps({**config, "weights_sha256": _digest(weights)}, indent=2, sort_keys=True, allow_nan=False) + "\n"
    path = folder / WEIGHTS_NAME
    with _alone(folder):
        check_own(folder)
        with writing(path):
            old = path.read_bytes() if path.exists() else None
        if old is not None:
            write_atomically(_kept(folder, old), old)
        try:
            write_atomically(path, weights)
            write_atomically(folder / CONFIG_NAME, text)
        except BaseException:
            with suppress(OSError):  # what went wrong first is told
                _undo(folder, old, text)
            raise
        with writing(folder):
            for left in (*folder.glob(f"{KEPT}*"), *folder.glob(".adapter*.tmp")):  # the latter by killed processes
                left.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process or thread writes an adapter here; the folder itself is the lock."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    try:
        with writing(folder):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def check_own(folder: Path) -> None:
    """Refuse a folder whose configuration was not written here: peft keeps its own under the same name.

    Raises:
        UserError: Names the folder.
    """
    try:
        config = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # none, or a damaged one, from which nothing can be lost
    if not isinstance(config, dict) or "format_version" not in config:
        raise UserError(
            f"Cannot save an adapter to {folder}: its {CONFIG_NAME} is that of another program (peft, perhaps). "
            "Choose another folder."
        )


def _undo(folder: Path, old: bytes | None, text: str) -> None:
    """Put the old weights back, unless the new configuration is there already."""
    path = folder / WEIGHTS_NAME
    if old is None:
        path.unlink(missing_ok=True)
    elif path.read_bytes() == old:
        _kept(folder, old).unlink(missing_ok=True)
    elif (folder / CONFIG_NAME).read_text(encoding="utf-8") != text:
        os.replace(_kept(folder, old), path)


def _kept(folder: Path, weights: bytes) -> Path:
    return folder / f"{KEPT}{_digest(weights)}"


def read_files(folder: Path, doing: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The configuration and the tensors of an adapter folder; safe while another process replaces it.

    Args:
        folder: Where `write_files` wrote.
        doing: First words of the error's sentence.

    Raises:
        UserError: Missing, damaged or mismatched files.
    """
    while True:
        before = _version(folder)
        config = _read_config(folder, doing)
        try:
            return config, _read_tensors(folder, config, doing)
        except UserError:
            if _version(folder) == before:
                raise  # else the adapter was replaced meanwhile


def _version(folder: Path) -> tuple[int, int] | None:
    """Which configuration is there: each writing makes a file of its own, even of the same text."""
    try:
        found = (folder / CONFIG_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read_config(folder: Path, doing: str) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        raise UserError(f"{doing}: there is no {CONFIG_NAME} in it. Give the folder that was saved.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{doing}: its {CONFIG_NAME} cannot be read ({error}). Save it again.") from None
    if not isinstance(config, dict) or config.get("format_version") != FORMAT_VERSION:
        found = config.get("format_version") if isinstance(config, dict) else None
        raise UserError(f"{doing}: format version {found!r} is not {FORMAT_VERSION}. Use the version that wrote it.")
    return config


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _read_tensors(folder: Path, config: Mapping[str, Any], doing: str) -> dict[str, torch.Tensor]:
    try:
        tensors = load_tensors(_read_weights(folder, config.get("weights_sha256"), doing))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{doing}: its {WEIGHTS_NAME} cannot be read ({error}). Save it again.") from None
    if other := sorted({str(tensor.dtype) for tensor in tensors.values()} - {"torch.float32"}):
        raise UserError(f"{doing}: {WEIGHTS_NAME} holds {other[0]}, and must be float32. Save it again.")
    return tensors


def _read_weights(folder: Path, digest: object, doing: str) -> bytes:
    """The weights of this hash: those in place, or where writing was cut short those kept."""
    weights = (folder / WEIGHTS_NAME).read_bytes()
    if _digest(weights) == digest:
        return weights
    if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) and (folder / f"{KEPT}{digest}").is_file():
        kept = (folder / f"{KEPT}{digest}").read_bytes()
        if _digest(kept) == digest:
            return kept
    load_tensors(weights)  # a file that is cut off is told as such
    raise UserError(f"{doing}: {WEIGHTS_NAME} is not the one {CONFIG_NAME} was written with. Save it again.")


def _digest(weights: bytes) -> str:
    return hashlib.sha256(weights).hexdigest()
