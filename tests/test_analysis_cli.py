"""patch, transfer and overlap from outside: what they print and keep, how they continue, and what they refuse."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import WORDS
from upper_fixtures import no_pictures

from site_interp.cli import main

QUICK = "--n-shots 2 --n-prompts 3 --steps 6 --batch-size 2"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder that holds three tasks, a.jsonl, b.jsonl and c.jsonl."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SITE_INTERP_DATA", raising=False)
    monkeypatch.setattr("site_interp.figure_files._make_pictures", no_pictures)
    for name in "abc":
        chooser = random.Random(name)
        rows = [{"input": f"{word} {chooser.choice(WORDS)}", "output": chooser.choice(WORDS)} for word in WORDS[:40]]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def command(words: str, *more: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main([*words.split(), *map(str, more)])
        shown = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return leaving.value.code, shown.out, shown.err

    return command


@pytest.fixture
def tiny(tiny_folders: dict[str, Path]) -> str:
    return f"--model {tiny_folders['llama']}"


def kept(kind: str, start: str) -> Path:
    """The one piece whose name starts so."""
    (path,) = Path("out", kind).glob(f"{start}__*.json")
    return path


PATCH = f"patch --task a.jsonl --task b.jsonl --n-test 4 --n-queries 3 --n-random 2 --out out {QUICK}"


def test_patch_answers_every_question_once_and_continues(run: Run, tiny: str) -> None:
    command = f"{PATCH} --seeds 0,1 {tiny}".replace("--task b.jsonl ", "")
    code, out, err = run(command)
    assert code == 0, err
    assert "Plan: 11 pieces (tasks 1, seeds 2)" in err, "3 sweeps for the first seed and 4 curves for every seed"
    for words in ("top alpha", "bottom alpha", "indirect effect", "attribution", "random (2 draws)", "fitted adapter"):
        assert words in out
    pieces = sorted(path.name for path in Path("out/patching").iterdir())
    assert len(pieces) == 11
    assert [name for name in pieces if "shuffled" in name] == [kept("patching", "file-a__seed-0__shuffled").name]
    before_it = {path.name: path.stat().st_mtime_ns for path in Path("out/patching").iterdir()}
    missing = kept("patching", "file-a__seed-1__necessity")
    before = missing.read_text()
    missing.unlink()
    code, again, err = run(command)
    assert (code, again) == (0, out)
    assert "10 finished before" in err
    assert missing.read_text() == before
    same = {path.name: path.stat().st_mtime_ns for path in Path("out/patching").iterdir()}
    assert {name for name in same if before_it[name] != same[name]} == {missing.name}


def test_the_numbers_of_a_figure_are_those_of_its_pieces(run: Run, tiny: str) -> None:
    assert run(f"{PATCH} {tiny}")[0] == 0
    piece = json.loads(kept("patching", "file-a__seed-0__sufficiency").read_text())["values"]
    shown = json.loads(Path("out/figures/patching_sufficiency_first_token.json").read_text())
    panels = {panel["task"]: panel for panel in shown["panels"]}
    assert panels.keys() == {"file/a", "file/b", "mean of tasks"}
    assert len(piece["curves"]) == len(panels["file/a"]["lines"]) == 5
    for name, points in piece["curves"].items():
        line = panels["file/a"]["lines"][name]
        means = [np.mean(point["scores"]["first_token"]) for point in points]
        assert [score["value"] for score in line["scores"]] == pytest.approx(means)
        assert line["k"] == [point["k"] for point in points]
        area = np.trapezoid(means, [point["share"] / 100 for point in points])
        assert line["area"]["value"] == pytest.approx(area)
    drawn = [np.mean(draw["scores"]["first_token"]) for draw in piece["draws"] if draw["share"] == 30]
    assert panels["file/a"]["random"]["means"][2] == pytest.approx(np.mean(drawn))
    both = [panels[task]["lines"]["top alpha"]["scores"][7]["value"] for task in ("file/a", "file/b")]
    assert panels["mean of tasks"]["lines"]["top alpha"]["scores"][7]["value"] == pytest.approx(np.mean(both))
    effects = json.loads(Path("out/figures/effects_zero_shot_file-a.json").read_text())
    swept = json.loads(kept("patching", "file-a__seed-0__zero_shot").read_text())["values"]["effects"]
    assert np.allclose(effects["effects"], np.mean(swept, axis=0), atol=1e-6)
    assert -1 <= effects["spearman_with_alpha"] <= 1


def test_adapters_of_a_run_are_taken_over(run: Run, tiny: str) -> None:
    assert run(f"run --task a.jsonl --method site --n-test 7 --out out {QUICK} {tiny}")[0] == 0
    (weights,) = Path("out/adapters").glob("file-a__*seed-0/adapter.safetensors")
    before = weights.stat().st_mtime_ns
    code, _, err = run(f"patch --task a.jsonl --n-test 2 --n-queries 2 --n-random 0 --out out {QUICK} {tiny}")
    assert code == 0, err
    assert weights.stat().st_mtime_ns == before


def test_transfer_measures_every_pair_and_continues(run: Run, tiny: str) -> None:
    command = f"transfer --task a.jsonl --task b.jsonl --task c.jsonl --n-test 4 --out out {QUICK} {tiny}"
    code, out, err = run(command)
    assert code == 0, err
    assert "on " in out
    column = json.loads(kept("transfer", "file-b__seed-0").read_text())["values"]
    assert column["k"] == 4
    kinds = [row["kind"] for row in column["rows"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "soft": 3, "top_k": 3, "counterpart": 3, "shuffled": 5, "joint": 1,
    }  # fmt: skip
    shown = json.loads(Path("out/figures/transfer_soft.json").read_text())
    row = next(row for row in column["rows"] if (row["kind"], row["source"]) == ("soft", "file/c"))
    assert shown["values"][2][1] == pytest.approx(np.mean(row["scores"]["first_token"]))
    assert shown["rows"] == ["a", "b", "c", "one alpha for all", "shuffled alphas"]
    chance = [np.mean(row["scores"]["first_token"]) for row in column["rows"] if row["kind"] == "shuffled"]
    assert shown["values"][4][1] == pytest.approx(np.mean(chance))
    assert shown["overlap_correlation"]["n_pairs"] in (0, 2, 4, 6), "two sources for each target that works at all"
    assert "rank correlation" in " ".join(out.split())
    own = {row["kind"]: row["scores"] for row in column["rows"] if row["source"] == "file/b" and row["kind"] != "top_k"}
    assert own["soft"] == own["counterpart"], "own embedding and own alpha, both ways"
    kept("transfer", "file-b__seed-0").write_text("torn")
    again = run(command)
    assert again[:2] == (code, out)
    assert json.loads(kept("transfer", "file-b__seed-0").read_text())["values"] == column


def test_overlap_compares_lists_and_tells_stability(run: Run, tiny: str) -> None:
    command = f"overlap --task a.jsonl --task b.jsonl --task c.jsonl --seeds 0,1 --k 3 --out out {QUICK} {tiny}"
    code, out, err = run(command)
    assert code == 0, err
    assert "top 3 heads of 12; by chance they share 0.8, Jaccard 0.16" in out
    with Path("out/head_catalogue.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert rows[0].keys() >= {"head", "n_tasks", "induction", "previous_token", "alpha file/a", "attention to itself"}
    shares = [sum(float(row[name]) for name in row if name.startswith("attention to")) for row in rows]
    assert shares == pytest.approx([1.0] * 12, abs=1e-2)
    shown = json.loads(Path("out/figures/overlap_jaccard.json").read_text())
    assert len(shown["pairs"]) == 3
    assert set(shown["stability"]) == {"file/a", "file/b", "file/c"}
    assert json.loads(run(f"{command} --json")[1])["spread"].keys() == {"file/a", "file/b", "file/c"}


@pytest.mark.parametrize("verb", ["patch", "transfer", "overlap"])
def test_a_plan_writes_nothing(run: Run, tiny: str, verb: str) -> None:
    before = set(Path().iterdir())
    code, out, err = run(f"{verb} --task a.jsonl --task b.jsonl --out out {QUICK} {tiny} --plan --json")
    assert code == 0, err
    assert json.loads(out)["minutes"] >= 0
    assert set(Path().iterdir()) == before


REFUSED = {
    "one task": ("transfer --task a.jsonl TINY", "Cannot compare tasks: only file/a was given"),
    "one task to compare": ("overlap --task a.jsonl TINY", "Give two or more"),
    "too many heads": ("overlap --task a.jsonl --task b.jsonl --k 13 TINY", "sets of 13 heads: the model has 12"),
    "too large a share": ("transfer --task a.jsonl --task b.jsonl --share 101 TINY", "--share"),
    "no examples": ("patch --task a.jsonl --n-test 0 TINY", "--n-test"),
    "an unknown task": ("patch --task antonymm TINY", "antonym"),
    "a file for a folder": ("patch --task a.jsonl --out a.jsonl TINY", "Cannot write to a.jsonl"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_and_exit_code_2(run: Run, tiny: str, case: str) -> None:
    words, sentence = REFUSED[case]
    before = set(Path().iterdir())
    code, out, err = run(words.replace("TINY", tiny))
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize("verb", ["patch", "transfer", "overlap"])
def test_an_adapter_of_another_model_is_never_replaced(
    run: Run, tiny: str, verb: str, tiny_folders: dict[str, Path]
) -> None:
    tasks = "--task a.jsonl --task b.jsonl"
    assert run(f"overlap {tasks} --out out {QUICK} {tiny}")[0] == 0
    code, _, err = run(f"{verb} {tasks} --out out {QUICK} --model {tiny_folders['gpt2']}")
    assert code == 2
    assert "made with another model" in err


def test_another_template_of_the_same_name_does_not_replace_an_adapter(run: Run, tiny: str) -> None:
    command = f"overlap --task a.jsonl --task b.jsonl --out out {QUICK} {tiny} --template mine.json"
    Path("mine.json").write_text(json.dumps({"name": "mine", "input_prefix": "In: "}))
    assert run(command)[0] == 0
    before = {path: path.read_bytes() for path in Path("out/adapters").rglob("*.*")}
    Path("mine.json").write_text(json.dumps({"name": "mine", "input_prefix": "B: "}))
    code, _, err = run(command)
    assert code == 2
    assert "made with another template of the same name" in err
    assert {path: path.read_bytes() for path in Path("out/adapters").rglob("*.*")} == before


def test_pieces_of_other_settings_stay(run: Run, tiny: str) -> None:
    command = f"transfer --task a.jsonl --task b.jsonl --n-test 3 --out out {QUICK} {tiny}"
    assert run(command)[0] == 0
    before = {path: path.read_bytes() for path in Path("out/transfer").iterdir()}
    assert run(f"{command} --share 50")[0] == 0
    after = {path: path.read_bytes() for path in Path("out/transfer").iterdir()}
    assert before.items() < after.items()
