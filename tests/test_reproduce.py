"""The commands of docs/reproduce.md, on a tiny Llama: all of them as plans, one in earnest."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from tiny_models import WORDS
from typer.testing import CliRunner

from site_interp.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "reproduce.md"
SUITES = ("fv", "anli", "mmlu_pro", "bbh")


def commands() -> dict[str, list[str]]:
    """The arguments of every command of the page, by the suite it runs."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    found = [shlex.split(line) for line in lines]
    assert all(line[:2] == ["site-interp", "run"] for line in found)
    return {line[line.index("--suite") + 1]: line[1:] for line in found}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every benchmark in its own format, a few rows of words that a tiny vocabulary has."""
    folder = tmp_path_factory.mktemp("data")
    pairs = [(f"{WORDS[n]} {WORDS[(3 * n + 1) % 50]}", WORDS[(n + 7) % 50]) for n in range(40)]
    fv = folder / "fv" / "words"
    fv.mkdir(parents=True)
    for name, part in (("train", pairs[:24]), ("valid", pairs[24:30]), ("test", pairs[30:])):
        (fv / f"{name}.json").write_text(json.dumps([{"input": x, "output": y} for x, y in part]))
    for name in ("bbh", "anli", "mmlu_pro"):
        (folder / name).mkdir()
    (folder / "bbh/words.json").write_text(json.dumps({"examples": [{"input": x, "target": y} for x, y in pairs]}))
    rows = [{"context": x, "hypothesis": y, "label": "enc"[n % 3]} for n, (x, y) in enumerate(pairs)]
    (folder / "anli/r1_dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = [
        {"question": x, "options": ["aa", "bb"], "answer": "AB"[n % 2], "category": "law"}
        for n, (x, _) in enumerate(pairs)
    ]
    (folder / "mmlu_pro/test_sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    return folder


def on_a_tiny_llama(arguments: list[str], llama: Path, data: Path, out: Path) -> list[str]:
    places = {
        "meta-llama/Llama-3.1-8B": str(llama),
        "cuda": "cpu",
        "bfloat16": "float32",
        "DATA": str(data),
        arguments[arguments.index("--out") + 1]: str(out),
    }
    return [places.get(word, word) for word in arguments]


def test_there_is_a_command_for_each_benchmark_of_the_table_with_the_same_methods() -> None:
    found = commands()
    assert tuple(found) == SUITES
    methods = {suite: [b for a, b in pairwise(words) if a == "--method"] for suite, words in found.items()}
    assert set(map(tuple, methods.values())) == {("icl", "i2cl", "lora", "site", "site:n_prompts=1")}
    assert all(words[words.index("--preset") + 1] == "paper" for words in found.values())


@pytest.mark.parametrize("suite", SUITES)
def test_every_command_can_be_planned(suite: str, data: Path, tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    arguments = on_a_tiny_llama(commands()[suite], tiny_folders["llama"], data, tmp_path / "out")
    made = CliRunner().invoke(app, [*arguments, "--plan", "--json"])
    assert made.exit_code == 0, made.output
    plan = json.loads(made.stdout)
    assert len(plan["units"]) == 2 + 3 * 5  # the floors, then five methods with three seeds on one task
    assert plan["tokens"] > 0
    assert not (tmp_path / "out").exists()


def test_a_command_runs(data: Path, tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    arguments = on_a_tiny_llama(commands()["fv"], tiny_folders["llama"], data, tmp_path / "out")
    short = {"--seeds": "0", "--n-test": "3"}
    for option, value in short.items():
        arguments[arguments.index(option) + 1] = value
    made = CliRunner().invoke(app, [*arguments, "--steps", "3", "--n-shots", "2", "--json"])
    assert made.exit_code == 0, made.output
    cells = json.loads(made.stdout)["cells"]
    methods = {cell["method"] for cell in cells if cell["metric"] == "prefix_match"}
    assert {method.partition("(")[0] for method in methods} == {"echo", "majority", "icl", "i2cl", "lora", "site"}
