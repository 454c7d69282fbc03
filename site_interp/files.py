"""Writing files so that nothing half-written is ever seen, and JSON that every reader accepts."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from site_interp.errors import UserError


def safe_name(text: str) -> str:
    """A text as part of a file name: every character outside `A-Za-z0-9_-` becomes `-`.

    Example:
        >>> safe_name("bundled/antonym")
        'bundled-antonym'
    """
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)


def json_line(value: object) -> str:
    """A value as one line of standard JSON without the line's end; nan and infinities become null, arrays lists.

    Raises:
        TypeError: A part of the value is no text, number, truth value, None, list, mapping or array.

    Example:
        >>> json_line({"low": float("nan"), "n": (1, 2)})
        '{"low": null, "n": [1, 2]}'
    """
    return json.dumps(_plain(value), allow_nan=False)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a run killed half-way, finds the old content or the new, never a part.

    Folders above the file are made if needed.

    Args:
        path: File to write or replace.
        content: All of it; a text is written as UTF-8.

    Raises:
        UserError: The file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system inside the block into one sentence that names the path.

    Raises:
        UserError: In place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        raise UserError(f"Cannot write to {path}: {cause}. Free the place or choose another one.") from error


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep every other process out of an output folder inside the block; the folder is made if needed.

    Raises:
        UserError: Another process is writing there, or it cannot be made.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"Cannot write to {out}: another process is writing there. Wait for it to end or choose another --out."
            ) from None
    try:
        yield
    finally:
        lock.release()


def _plain(value: object) -> object:
    """The value in types that JSON has."""
    if hasattr(value, "tolist"):  # numpy arrays and numbers
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(part) for part in value]
    return value


def check_writable(folder: Path) -> None:
    """Make a folder and try to write in it, before long work rests on it.

    Raises:
        UserError: It cannot be made or written.
    """
    trial = folder / f".writable.{os.getpid()}.tmp"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        trial.touch()
        trial.unlink()
