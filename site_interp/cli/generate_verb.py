"""`site-interp generate`: answers for inputs, with a task switched on, or several in one file."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from site_interp.cli import options
from site_interp.errors import UserError

if TYPE_CHECKING:
    from site_interp.adapter import Adapter


@dataclass(frozen=True)
class _Row:
    """One input: its text, the adapter it names, if any, and where it stands."""

    text: str
    adapter: str | None
    where: str


def generate_verb(
    inputs: Annotated[Path | None, typer.Argument(help="File of inputs, one a line; '-' or nothing: stdin.")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter",
            help="Adapter folder, or NAME=FOLDER (by default the task's name without its source); may be repeated. "
            "Without it the model as it is.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="By default the adapter's model.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Inputs are whole prompts.")] = False,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help='Lines are JSON: a text, {"input": text}, or {"input": text, "adapter": NAME} (needed with several '
            'adapters; "__base__" is none); so is the output.',
        ),
    ] = False,
    template: Annotated[str | None, typer.Option("--template", help="By default the adapter's, or qa.")] = None,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Longest answer in tokens.")] = 20,
    memory: options.Memory = "4G",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
) -> None:
    """Read inputs, one a line, and print one answer a line, in their order.

    Blank lines are no inputs; an answer of several lines is printed as one.
    """
    from site_interp.generation import generate
    from site_interp.prompts import load_template

    rows = _read(inputs, jsonl=jsonl)
    budget = options.read_memory(memory)
    adapters = _adapters(adapter or [])
    names = _names(rows, adapters)
    chosen = None if template is None else load_template(template)
    first = next(iter(adapters.values()), None)
    own = "smollm2-135m" if first is None else first.embedding.model
    loaded = options.read_model(own if model is None else model, device, dtype)
    answers = generate(
        loaded,
        [row.text for row in rows],
        first if names is None else adapters,
        adapter_names=names,
        template=chosen,
        raw=raw,
        max_new_tokens=max_new_tokens,
        memory=budget,
    )
    for row, answer in zip(rows, answers, strict=True):
        named = {} if row.adapter is None else {"adapter": row.adapter}
        shown = json.dumps({"input": row.text, **named, "output": answer})
        print(shown if jsonl else " ".join(answer.splitlines()))


def _adapters(given: Sequence[str]) -> dict[str, "Adapter"]:
    """The adapters by name, in the order given."""
    from site_interp.adapter import Adapter
    from site_interp.generation import NO_ADAPTER

    adapters: dict[str, Adapter] = {}
    for text in given:
        before, separator, after = text.partition("=")
        named = bool(separator) and not _exists(text)  # a folder's own name may hold the sign
        one = Adapter.from_pretrained(after if named else text)
        name = before if named else one.embedding.task.rpartition("/")[2]
        if not name or name == NO_ADAPTER or name in adapters:
            wrong = f"two are called {name!r}" if name in adapters else f"{name!r} cannot be an adapter's name"
            raise UserError(f"Cannot use the adapter {text}: {wrong}. Name it with --adapter NAME=FOLDER.")
        adapters[name] = one
    return adapters


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False


def _names(rows: Sequence[_Row], adapters: Mapping[str, "Adapter"]) -> list[str] | None:
    """The adapter of each input, or None where a single one, or none, is meant for all of them."""
    from site_interp.generation import check_adapter_name

    if len(adapters) < 2 and all(row.adapter is None for row in rows):
        return None
    names = []
    for row in rows:
        if row.adapter is None:
            raise UserError(
                f'Cannot tell which adapter {row.where} is for: it names none. Give --jsonl lines {{"input": text, '
                '"adapter": NAME}, all of them.'
            )
        check_adapter_name(row.adapter, adapters, f"Cannot use {row.where}")
        names.append(row.adapter)
    return names


def _read(path: Path | None, *, jsonl: bool) -> list[_Row]:
    """Inputs from a file or stdin; blank lines are left out."""
    where = "stdin" if path is None or str(path) == "-" else str(path)
    try:
        content = sys.stdin.buffer.read() if where == "stdin" else Path(where).read_bytes()
        lines = [line.removesuffix("\r") for line in content.decode("utf-8-sig").split("\n")]
    except OSError as error:
        raise UserError(f"Cannot read inputs from {where}: {error.strerror}. Give a file, or pipe them in.") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"Cannot read inputs from {where}: byte {error.start} is not UTF-8. Save it as UTF-8."
        ) from None
    kept = [(line, f"line {number} of {where}") for number, line in enumerate(lines, 1) if line.strip()]
    if not kept:
        raise UserError(f"Cannot generate: {where} has no inputs. Give one a line.")
    return [_from_json(line, place) if jsonl else _Row(line, None, place) for line, place in kept]


def _from_json(line: str, where: str) -> _Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError too
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error) or "nested too deeply"
        raise UserError(f"Cannot read {where} as JSON ({reason}): {line[:60]!r}. Correct the line.") from None
    fields = value if isinstance(value, dict) else {"input": value}
    text, adapter = fields.get("input"), fields.get("adapter")
    if not isinstance(text, str):
        raise UserError(f'Cannot use {where}: {line[:60]!r} is neither a text nor {{"input": text}}. Correct it.')
    if not isinstance(adapter, str | None):
        raise UserError(f'Cannot use {where}: its "adapter" is {json.dumps(adapter)}, not a name. Correct it.')
    return _Row(text, adapter, where)
