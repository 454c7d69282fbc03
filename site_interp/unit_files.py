"""One JSON file for each finished piece of an analysis, named by what it holds and by its hash.

A piece is written whole, so a killed run leaves finished pieces and nothing else; the same command makes the others.
Pieces made with other settings, models or choices of tasks have other names, and stay.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from site_interp.errors import UserError
from site_interp.files import json_line, safe_name, write_atomically


def unit_path(out: Path, kind: str, unit_hash: str, *parts: str) -> Path:
    """Where a piece is kept: `OUT/<kind>/<part>__<part>__<start of its hash>.json`."""
    return out / kind / ("__".join((*map(safe_name, parts), unit_hash[:8])) + ".json")


def read_unit(path: Path, unit_hash: str) -> dict[str, Any] | None:
    """The values of a piece, or None where it is missing, is not the one asked for, or was changed since it was made.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}. Remove it or choose another --out.") from None
    except (ValueError, RecursionError):
        return None  # made again, and replaced
    if not isinstance(found, dict) or found.get("unit_hash") != unit_hash:
        return None
    values = found.get("values")
    return values if isinstance(values, dict) and found.get("checksum") == _checksum(values) else None


def write_unit(path: Path, unit_hash: str, values: Mapping[str, object]) -> None:
    """Keep the values of a piece, in place of what was there.

    Raises:
        UserError: It cannot be written.
    """
    checksum = _checksum(values)
    write_atomically(path, json_line({"unit_hash": unit_hash, "checksum": checksum, "values": values}) + "\n")


def _checksum(values: Mapping[str, object]) -> str:
    return hashlib.sha256(json_line(values).encode()).hexdigest()[:16]
