"""Tables, numbers and figures of docs/results.md, from the records in results/main: seconds, no model.

    python benchmarks/results.py [--keep RUNS --data-dir DATA]

With --keep the records of `make results` (RUNS/<part>/results.jsonl, no text of any task) replace those in results/main
first. In the page, what stands between `<!-- table: NAME -->` and `<!-- end -->` is a table, and what stands between
`<!--= NAME -->` and `<!--/-->` one number; both are written here, everything else by hand.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from site_interp import load_task
from site_interp.comparison import Interval
from site_interp.experiments.summary import FLOORS, MEAN, Summary, summarise_records
from site_interp.experiments.tables import difference_table, markdown, overall_table, percent, task_table
from site_interp.experiments.tradeoffs import make_tradeoffs, split_budget
from site_interp.metrics import Metric
from site_interp.records import Record
from site_interp.store import read_results, save_figures
from site_interp.tasks import short_names

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "main"
PAGE = ROOT / "docs" / "results.md"
FIGURES = ROOT / "figures" / "results"
PARTS = ("fv", "labels", "bbh", "choice", "ablations")
N_TEST = 50


def keep(runs: Path, data_dir: str | None) -> None:
    """Copy the records of a run of every part, and what a blind choice would get."""
    for part in PARTS:
        if not (runs / part / "results.jsonl").is_file():
            print(f"{part} has no results in {runs}: left as it is.", file=sys.stderr)
            continue
        (KEPT / part).mkdir(parents=True, exist_ok=True)
        shutil.copy(runs / part / "results.jsonl", KEPT / part / "results.jsonl")
        tasks = dict.fromkeys(record.task for record in read_results(runs / part))
        chances = {name: load_task(name, data_dir=data_dir).chance(N_TEST) for name in tasks}
        known = {name: chance for name, chance in chances.items() if chance is not None}
        (KEPT / part / "chances.json").write_text(json.dumps(known, indent=1) + "\n")


@cache
def records(part: str) -> tuple[Record, ...]:
    """The records of a part, the floors last."""
    found = read_results(KEPT / part)
    return tuple(sorted(found, key=lambda record: record.method in FLOORS))


@cache
def summary(part: str) -> Summary:
    return summarise_records(records(part))


def chances(part: str) -> dict[str, float]:
    return json.loads((KEPT / part / "chances.json").read_text())


def task_scores(part: str, metric: Metric) -> str:
    """Methods as rows and tasks as columns: twelve tasks of short names are narrower than twelve methods."""
    lines = task_table(summary(part), metric, chances(part) if metric == "choice_match" else None)
    names = short_names(line[0] for line in lines[1:])
    turned = list(zip(*[[names.get(line[0], line[0]), *line[1:]] for line in lines], strict=True))
    return markdown([[("method" if row[0] == "task" else row[0]), *row[1:]] for row in turned])


def labels_table(metric: Metric) -> str:
    """Methods x budgets, mean over tasks."""
    made = summary("labels")
    cells: dict[str, dict[int, str]] = {}
    for label in made.methods:
        method, budget = split_budget(label)
        cell = made.cell(MEAN, label, metric)
        cells.setdefault(method, {})[budget or 0] = percent(cell.interval) if cell else "inapplicable"
    budgets = sorted({budget for found in cells.values() for budget in found if budget})
    rows = [[method, *(found.get(b, found.get(0, "–")) for b in budgets)] for method, found in cells.items()]
    return markdown([["method", *(f"{budget} labels" for budget in budgets)], *rows])


def ablation_table() -> str:
    """One line for each variant of SITE: its score, and the paired difference from SITE as it is."""
    made = summary("ablations")
    lines = [["variant", "first token right, %", "minus SITE", "prefix match, %", "minus SITE"]]
    for label in made.methods:
        if not label.startswith("site"):
            continue
        line = [label.removeprefix("site").strip("()") or "SITE as it is"]
        for metric in ("first_token", "prefix_match"):
            cell = made.cell(MEAN, label, metric)
            line.append(percent(cell.interval) if cell else "–")
            line.append("" if label == "site" else against(made, label, "site", metric))
        lines.append(line)
    return markdown(lines)


def against(made: Summary, first: str, second: str, metric: Metric) -> str:
    """The paired difference of the means, first minus second, in points."""
    for d in made.differences:
        if d.task == MEAN and d.metric == metric and {d.first, d.second} == {first, second}:
            i = d.interval
            turned = i if d.first == first else Interval(-i.value, -i.high, -i.low, i.n)
            return percent(turned, sign=True)
    return "–"


def learning_rates() -> str:
    """One line for each method and step size: validation of both tasks, and whether anything was learnt."""
    lines = [json.loads(line) for line in SOURCES["learning"].read_text().splitlines()]
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    heading = [
        "method",
        "step size",
        *(f"{task}: validation loss, first token" for task in tasks),
        "mean loss",
        "training loss, first and last steps",
        "distinct answers (right ones)",
    ]
    rows = []
    for method, lr in dict.fromkeys((line["method"], line["lr"]) for line in lines):
        own = {line["task"]: line for line in lines if (line["method"], line["lr"]) == (method, lr)}
        cells = [
            f"{own[t]['valid_loss']:.3f}, {100 * own[t]['valid_accuracy']:.0f} %" if t in own else "–" for t in tasks
        ]
        mean = sum(line["valid_loss"] for line in own.values()) / len(own)
        fall = [
            f"{_mean(o['first_losses']):.1f} to {_mean(o['last_losses']):.1f}" for o in own.values() if o["last_losses"]
        ]
        answers = [f"{o['distinct_answers']} ({o['distinct_right']})" for o in own.values()]
        rows.append([method, f"{lr:g}", *cells, f"{mean:.3f}", "; ".join(fall) or "–", "; ".join(answers)])
    return markdown([heading, *sorted(rows, key=lambda row: (row[0], float(row[1])))])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def inference() -> dict[str, dict[str, float]]:
    """Measured one after the other on a quiet machine by benchmarks/inference.py."""
    lines = (ROOT / "results" / "inference.jsonl").read_text().splitlines()
    return {line["method"]: line for line in map(json.loads, lines)}


def inference_table() -> str:
    rows = [
        [name, f"{line['prompt_tokens']:.0f}", f"{line['seconds_per_1000']:.1f}", f"{line['ratio']:.2f}"]
        for name, line in inference().items()
    ]
    return markdown([["method", "prompt tokens", "s per 1,000 queries", "times zero-shot"], *rows])


TABLES: Mapping[str, Callable[[], str]] = {
    "fv methods": lambda: markdown(overall_table(summary("fv"), records("fv"))),
    "fv first_token": lambda: task_scores("fv", "first_token"),
    "fv prefix_match": lambda: task_scores("fv", "prefix_match"),
    "fv differences": lambda: markdown(
        difference_table(summary("fv"), "site", ("prefix_match", "first_token", "strict_match"))
    ),
    "labels first_token": lambda: labels_table("first_token"),
    "labels prefix_match": lambda: labels_table("prefix_match"),
    "bbh choice_match": lambda: task_scores("bbh", "choice_match"),
    "bbh strict_match": lambda: task_scores("bbh", "strict_match"),
    "choice choice_match": lambda: task_scores("choice", "choice_match"),
    "choice strict_match": lambda: task_scores("choice", "strict_match"),
    "ablations": ablation_table,
    "learning rates": learning_rates,
    "inference": inference_table,
}


SOURCES = {part: KEPT / part / "results.jsonl" for part in PARTS} | {
    "learning": ROOT / "results" / "learning_rates.jsonl",
    "inference": ROOT / "results" / "inference.jsonl",
}
"""Where the records of a table or number are, by the first word of its name."""
NOT_RUN = "(not run yet)"


def number(name: str) -> str:
    """One number of the page: `PART METHOD METRIC [TASK]`, or `PART METHOD - METHOD METRIC [TASK]` for a difference."""
    words = name.split()
    part, first = words[:2]
    made = summary(part)
    if words[2] == "-":
        return against(made, first, words[3], words[4])
    cell = made.cell(words[3] if len(words) > 3 else MEAN, first, words[2])
    if cell is None:
        raise SystemExit(f"docs/results.md asks for {name!r}, and there is no such score.")
    return percent(cell.interval)


def filled(text: str) -> str:
    """The page with every table and number written anew."""

    def table(found: re.Match[str]) -> str:
        made = TABLES[found[2]]() if _is_there(found[2].split()[0]) else NOT_RUN
        return f"{found[1]}\n\n{made}\n\n<!-- end -->"

    def value(found: re.Match[str]) -> str:
        made = number(found[2]) if _is_there(found[2].split()[0]) else NOT_RUN
        return f"{found[1]}{made}<!--/-->"

    text = re.sub(r"(<!-- table: (.+?) -->).*?<!-- end -->", table, text, flags=re.DOTALL)
    return re.sub(r"(<!--= (.+?) -->).*?<!--/-->", value, text)


def _is_there(name: str) -> bool:
    """Whether the records behind a name were kept: `make results` may have been stopped."""
    return name not in SOURCES or SOURCES[name].is_file()


def draw(folder: Path) -> None:
    """The figures of the page whose records are there."""
    figures = {}
    if _is_there("labels"):
        made = make_tradeoffs(summary("labels"), records("labels"))
        figures["accuracy_by_labels"] = made["accuracy_by_labels_first_token"]
    if _is_there("fv") and _is_there("inference"):
        seconds = {method: line["seconds_per_1000"] for method, line in inference().items()}
        made = make_tradeoffs(summary("fv"), records("fv"), seconds)
        figures["accuracy_by_cost"] = made["accuracy_by_cost_first_token"]
    if not figures:
        return
    with TemporaryDirectory() as scratch:
        save_figures(Path(scratch), figures)
        folder.mkdir(parents=True, exist_ok=True)
        for file in (Path(scratch) / "figures").iterdir():
            if file.suffix in (".json", ".png"):
                shutil.copy(file, folder / file.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder with the runs of every part")
    parser.add_argument("--data-dir", help="folder of the benchmarks, for --keep")
    given = parser.parse_args()
    if given.keep:
        keep(given.keep, given.data_dir)
    PAGE.write_text(filled(PAGE.read_text()))
    draw(FIGURES)


if __name__ == "__main__":
    main()
