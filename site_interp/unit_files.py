"""One JSON file for each finished piece of an analysis, named by what it holds and stamped with its hash.

A piece is written whole, so a killed run leaves finished pieces and nothing else; the same command makes the others.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from site_interp.errors import UserError
from site_interp.files import json_line, safe_name, write_atomically


def unit_path(out: Path, kind: str, *parts: str) -> Path:
    """Where a piece is kept: `OUT/<kind>/<part>__<part>.json`."""
    return out / kind / ("__".join(map(safe_name, parts)) + ".json")


def read_unit(path: Path, unit_hash: str) -> dict[str, Any] | None:
    """The values of a piece, or None where it is missing or was made by other settings or another model.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}. Remove it or choose another --out.") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"Cannot read {path}: it is no JSON. Remove it or choose another --out.") from None
    if not isinstance(found, dict) or found.get("unit_hash") != unit_hash:
        return None
    values = found.get("values")
    return values if isinstance(values, dict) else None


def write_unit(path: Path, unit_hash: str, values: Mapping[str, object]) -> None:
    """Keep the values of a piece, in place of what was there.

    Raises:
        UserError: It cannot be written.
    """
    write_atomically(path, json_line({"unit_hash": unit_hash, "values": values}) + "\n")
