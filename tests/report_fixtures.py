"""Output folders made by hand, through the functions that runs write with."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from site_interp.metrics import Metric
from site_interp.plots import AccuracyRow, accuracy_bars, head_map
from site_interp.records import Record
from site_interp.store import open_results, save_figures, save_predictions, write_comparisons

Scores = Mapping[Metric, Sequence[float | int]]

INPUTS = ["hot", "early", "big", "up"]
ANSWERS = [["cold"], ["late"], ["small", "little"], ["down"]]
# (method, seed) -> prefix match of the four examples; strict match is the same but where STRICT says otherwise.
PREFIX: dict[tuple[str, int], list[int]] = {
    ("echo", 0): [0, 0, 0, 0],
    ("zero_shot", 0): [1, 0, 0, 0],
    ("icl", 0): [1, 1, 0, 0],
    ("icl", 1): [1, 0, 1, 0],
    ("site", 0): [1, 1, 1, 0],
    ("site", 1): [0, 1, 1, 0],
}
STRICT = {("site", 0): [1, 0, 0, 0]}
NATS = [-0.5, -1.0, -1.5, -2.0]
EVIL = "<script>window.hacked=1</script></script><img src=x onerror=window.hacked=1>&amp;\u2028\"'"


def record(task: str, method: str, seed: int = 0, **fields: Any) -> Record:
    """A record of an unscored unit, unless the fields say more."""
    shared: dict[str, Any] = {
        "model": "tiny-model",
        "model_fingerprint": "f00d",
        "dtype": "float32",
        "task": task,
        "split_hash": f"split of {task}",
        "method": method,
        "seed": seed,
        "unit_hash": f"{task} {method} {fields.get('variant', '')} {seed}",
        "version": "9.8.7",
    }
    return Record(**{**shared, **fields})


def scored(task: str, method: str, seed: int, scores: Scores, **fields: Any) -> list[Record]:
    """The records of a scored unit."""
    return [
        record(task, method, seed, metric=metric, value=sum(row) / len(row), n=len(row),
               scores=tuple(map(float, row)), **{"labels": 7, **fields})
        for metric, row in scores.items()
    ]  # fmt: skip


def write_records(out: Path, records: Sequence[Record]) -> None:
    with open_results(out) as results:
        for unit in dict.fromkeys(made.unit_hash for made in records):
            results.append([made for made in records if made.unit_hash == unit])


def write_unit(
    out: Path, task: str, unit: tuple[str, int], scores: Scores, rows: Sequence[tuple[str, Sequence[str], str]]
) -> None:
    """A scored unit with its predictions; each row is an input, its answers and the output."""
    write_records(out, scored(task, *unit, scores))
    write_predictions(out, task, unit, scores, rows)


def write_predictions(
    out: Path, task: str, unit: tuple[str, int], scores: Scores, rows: Sequence[tuple[str, Sequence[str], str]]
) -> None:
    method, seed = unit
    save_predictions(
        out,
        task=task,
        method=method,
        variant="",
        seed=seed,
        rows=[
            {"input": text, "answers": answers, "output": output}
            | {metric: float(row[place]) for metric, row in scores.items()}
            for place, (text, answers, output) in enumerate(rows)
        ],
    )


def small_run(out: Path, *, figures: bool = True) -> Path:
    """One task, three methods and a floor, two seeds, four examples; a second task on which every method failed."""
    for (method, seed), prefix in PREFIX.items():
        scores: dict[Metric, list[Any]] = {"prefix_match": prefix, "strict_match": STRICT.get((method, seed), prefix)}
        if method != "echo":
            scores["answer_log_prob"] = NATS
        outputs = [answers[0] if right else f"no {text}" for right, answers, text in zip(prefix, ANSWERS, INPUTS,
                                                                                          strict=True)]  # fmt: skip
        rows = list(zip(INPUTS, ANSWERS, [f" {output}\n" for output in outputs], strict=True))
        write_unit(out, "bundled/antonym", (method, seed), scores, rows)
    write_records(
        out,
        [
            record("file/none", "icl", status="inapplicable", reason="11 examples are needed, found 8"),
            record("file/none", "site", 1, status="failed", reason="out of <memory>"),
        ],
    )
    difference = {"task": "bundled/antonym", "first": "site", "second": "icl", "metric": "prefix_match", "n_seeds": 2}
    write_comparisons(
        out,
        [
            {**difference, "value": 0.125, "ci_low": -0.125, "ci_high": 0.5, "n": 4},
            {**difference, "second": "zero_shot", "value": -0.375, "ci_low": -0.5, "ci_high": -0.125, "n": 4},
        ],
    )
    for seed in (0, 1):
        config = {"format_version": 1, "task": "bundled/antonym", "seed": seed, "trace": [1.0] * 99, "n_prompts": 50,
                  "template": {"answer_cue": "\nA:"}, "versions": {"torch": "2.0"}}  # fmt: skip
        folder = out / "adapters" / f"bundled-antonym__seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text(json.dumps(config))
    if figures:
        write_figures(out)
    return out


def write_figures(out: Path, n_maps: int = 1) -> None:
    """Bars and maps of alpha."""
    rows = [AccuracyRow("antonym", "icl", 0.5, 0.25, 0.75), AccuracyRow("antonym", "echo", 0.0, 0.0, 0.0)]
    bars = accuracy_bars(rows, title=f"accuracy of {EVIL}")
    alpha = np.linspace(0, 1, 270).reshape(30, 9)
    maps = {f"alpha_{number}": (head_map(alpha, title=f"map {number}"), {}) for number in range(n_maps)}
    save_figures(out, {"accuracy": (bars, {}), **maps}, png=False)


def evil_run(out: Path) -> Path:
    """A run whose task, inputs, answers, outputs, reason, variant and figures all try to run a script."""
    rows = [(f"{EVIL} {number}", [EVIL, "x"], EVIL) for number in range(2)]
    write_unit(out, f"file/{EVIL}", ("site", 0), {"prefix_match": [1, 0]}, rows)
    write_records(out, [record(f"file/{EVIL}", "icl", variant=f"n={EVIL}", status="failed", reason=EVIL, model=EVIL)])
    row = {"task": EVIL, "first": EVIL, "second": "icl", "metric": "prefix_match", "n_seeds": 1, "n": 1}
    write_comparisons(out, [{**row, "value": 0.5, "ci_low": None, "ci_high": None}])
    write_figures(out)
    folder = out / "adapters" / "one"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({EVIL: EVIL}))
    return out


def large_run(out: Path, *, n_tasks: int = 10, n_examples: int = 100, n_maps: int = 10) -> Path:
    """Ten tasks with three methods, three seeds and 100 examples each; example i is right where i < 10 * (seed + 1)."""
    records = []
    for task in range(n_tasks):
        rows = [(f"input {place} of {task}", [f"answer {place}"], f"output {place}") for place in range(n_examples)]
        for method in ("zero_shot", "icl", "site"):
            for seed in (0, 1, 2):
                right = [int(place < 10 * (seed + 1)) for place in range(n_examples)]
                nats = [-0.123456789 * place for place in range(n_examples)]
                scores: Scores = {"prefix_match": right, "strict_match": right, "first_token": right,
                                  "answer_log_prob": nats}  # fmt: skip
                records += scored(f"file/task{task}", method, seed, scores)
                write_predictions(out, f"file/task{task}", (method, seed), scores, rows)
    with open_results(out) as results:
        results.append(records)
    write_figures(out, n_maps)
    return out
