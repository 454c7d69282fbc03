"""`site-interp generate`: answers for inputs, with a task switched on."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from site_interp.cli import options
from site_interp.errors import UserError


def generate_verb(
    inputs: Annotated[Path | None, typer.Argument(help="File of inputs, one a line; '-' or nothing: stdin.")] = None,
    adapter: Annotated[
        Path | None, typer.Option("--adapter", help="Adapter folder; without it the model as it is.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="By default the adapter's model.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Inputs are whole prompts.")] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help='Lines are JSON: a text, or {"input": text}; so is the output.')
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
    from site_interp.adapter import Adapter
    from site_interp.generation import generate
    from site_interp.prompts import load_template

    texts = _read(inputs, jsonl=jsonl)
    budget = options.read_memory(memory)
    made = None if adapter is None else Adapter.from_pretrained(adapter)
    chosen = None if template is None else load_template(template)
    name = model or ("smollm2-135m" if made is None else made.embedding.model)
    loaded = options.read_model(name, device, dtype)
    answers = generate(loaded, texts, made, template=chosen, raw=raw, max_new_tokens=max_new_tokens, memory=budget)
    for text, answer in zip(texts, answers, strict=True):
        print(json.dumps({"input": text, "output": answer}) if jsonl else " ".join(answer.splitlines()))


def _read(path: Path | None, *, jsonl: bool) -> list[str]:
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
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not kept:
        raise UserError(f"Cannot generate: {where} has no inputs. Give one a line.")
    return [_from_json(line, where, number) if jsonl else line for number, line in kept]


def _from_json(line: str, where: str, number: int) -> str:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"Cannot read line {number} of {where} as JSON ({error.msg}). Mend it.") from None
    text = value.get("input") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise UserError(f'Cannot use line {number} of {where}: it is neither a text nor {{"input": text}}. Mend it.')
    return text
