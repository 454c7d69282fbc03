"""Records of a run as a table, paired differences and figures; every number comes from per-example scores."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from site_interp.adapter import Adapter
from site_interp.baselines import METHOD_CLASSES
from site_interp.comparison import Interval, nested_mean, nested_test
from site_interp.experiments.plan import Unit
from site_interp.experiments.run import adapter_folder
from site_interp.metrics import METRICS, Metric
from site_interp.records import Record
from site_interp.similarity import holm
from site_interp.tasks import short_names

FLOORS = ("echo", "majority")
UNSEEDED = frozenset(one.name for one in METHOD_CLASSES if not one.seeded)
MEAN = "mean"  # name of the row over all tasks

Rows = dict[int, tuple[float, ...]]  # seed -> scores
Scores = dict[str, Rows]  # task -> its rows


@dataclass(frozen=True)
class Cell:
    """The score of one method on one task over its seeds, or on the mean of all tasks."""

    task: str
    method: str
    metric: Metric
    interval: Interval
    n_seeds: int


@dataclass(frozen=True)
class Difference:
    """A paired difference between two methods: above zero means `first` scores higher.

    Args:
        task: A task, or the mean of those that both methods have.
        first, second, metric: What is compared.
        interval: Of the mean difference.
        n_seeds: Seeds that both have.
        p_value: Of no difference (`nested_test`).
        p_corrected: The same, corrected for the number of method pairs on this task and metric (Holm).
        wins, ties, losses: Of a mean: tasks whose own interval is above 0, holds it, or is below.
    """

    task: str
    first: str
    second: str
    metric: Metric
    interval: Interval
    n_seeds: int
    p_value: float
    p_corrected: float = float("nan")
    wins: int = 0
    ties: int = 0
    losses: int = 0


@dataclass(frozen=True)
class Summary:
    """Cells and differences of a run.

    Args:
        tasks, methods: In the order of the run; `methods` are labels, with the variant where there is one.
        cells: For every task and method, and the mean over tasks where a method has every task.
        differences: For every pair of methods that use the model.
        missing: Reasons of (task, method) pairs without scores.
    """

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    cells: tuple[Cell, ...]
    differences: tuple[Difference, ...]
    missing: Mapping[tuple[str, str], str]

    def cell(self, task: str, method: str, metric: Metric) -> Cell | None:
        """One cell, or None where there is none."""
        found = (c for c in self.cells if (c.task, c.method, c.metric) == (task, method, metric))
        return next(found, None)


def label_of(method: str, variant: str) -> str:
    """A method's name with its variant."""
    return f"{method}({variant})" if variant else method


def summarise(units: Sequence[Unit], records: Sequence[Record]) -> Summary:
    """Intervals of each task and method, of their means, and paired differences.

    The interval of a task is over its examples and seeds, that of a mean over tasks as well.

    Args:
        units: What was to be run; records of other units are left out.
        records: From `read_results`.
    """
    wanted = {unit.hash: unit for unit in units}
    order = {unit_hash: place for place, unit_hash in enumerate(wanted)}
    ours = sorted((r for r in records if r.unit_hash in wanted), key=lambda record: order[record.unit_hash])
    tasks = tuple(dict.fromkeys(unit.task.name for unit in units))
    methods = tuple(dict.fromkeys(label_of(unit.method.name, unit.variant) for unit in units))
    once = [unit for unit in units if not unit.method.seeded and unit.n_labels is None]
    return _summary(tasks, methods, {label_of(unit.method.name, unit.variant) for unit in once}, ours)


def summarise_records(records: Sequence[Record]) -> Summary:
    """The same from records alone: tasks and methods in the order in which they stand there."""
    tasks = tuple(dict.fromkeys(record.task for record in records))
    methods = tuple(dict.fromkeys(label_of(record.method, record.variant) for record in records))
    once = [r for r in records if r.method in UNSEEDED and "labels=" not in r.variant]
    return _summary(tasks, methods, {label_of(record.method, record.variant) for record in once}, records)


def _summary(
    tasks: tuple[str, ...], methods: tuple[str, ...], unseeded: Set[str], records: Sequence[Record]
) -> Summary:
    """Cells and differences; `unseeded` are labels of methods whose only row meets every seed of others."""
    scores: dict[tuple[str, Metric], Scores] = {}
    missing = {}
    for record in records:
        label = label_of(record.method, record.variant)
        if record.metric is None or record.scores is None:
            missing[record.task, label] = f"{record.status}: {record.reason}"
        else:
            scores.setdefault((label, record.metric), {}).setdefault(record.task, {})[record.seed] = record.scores
    cells = tuple(cell for key, by_task in scores.items() for cell in _cells(*key, by_task, tasks))
    pairs = combinations([method for method in methods if method not in FLOORS], 2)
    differences = _corrected(
        difference
        for first, second in pairs
        for metric in METRICS
        if (second, metric) in scores and (first, metric) in scores
        for difference in _differences(
            (second, first), metric, scores[second, metric], scores[first, metric], bool(unseeded & {first, second})
        )
    )
    return Summary(tasks, methods, cells, differences, missing)


def _cells(method: str, metric: Metric, by_task: Scores, tasks: Sequence[str]) -> list[Cell]:
    listed = {task: list(rows.values()) for task, rows in by_task.items()}
    cells = [Cell(task, method, metric, nested_mean({task: rows}), len(rows)) for task, rows in listed.items()]
    if len(tasks) > 1 and set(by_task) == set(tasks):
        cells.append(Cell(MEAN, method, metric, nested_mean(listed), min(map(len, listed.values()))))
    return cells


def _differences(names: tuple[str, str], metric: Metric, a: Scores, b: Scores, unseeded: bool) -> list[Difference]:
    """Paired differences on the tasks both have, with the seeds both have; a method without seeds meets every seed."""
    shared = {task: (a[task], b[task]) for task in a if task in b}
    pairs = {task: _every_seed(*rows) if unseeded else _common_seeds(*rows) for task, rows in shared.items()}
    paired = {task: rows for task, rows in pairs.items() if rows[0]}
    found = []
    for task, (x, y) in paired.items():
        interval, p_value = nested_test({task: x}, {task: y})
        found.append(Difference(task, *names, metric, interval, max(len(x), len(y)), p_value))
    if len(paired) > 1:
        ours, theirs = ({task: rows[side] for task, rows in paired.items()} for side in (0, 1))
        n_seeds = min(max(len(x), len(y)) for x, y in paired.values())
        interval, p_value = nested_test(ours, theirs)
        wins, losses = sum(one.interval.low > 0 for one in found), sum(one.interval.high < 0 for one in found)
        mean = Difference(MEAN, *names, metric, interval, n_seeds, p_value)
        found.append(replace(mean, wins=wins, ties=len(found) - wins - losses, losses=losses))
    return found


def _corrected(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """The same with p-values corrected for the pairs of methods compared on the same task and metric."""
    listed = list(differences)
    corrected: dict[int, float] = {}
    for group in dict.fromkeys((one.task, one.metric) for one in listed):
        members = [
            place for place, one in enumerate(listed) if (one.task, one.metric) == group and one.p_value == one.p_value
        ]
        corrected.update(zip(members, holm([listed[place].p_value for place in members]), strict=True))
    return tuple(replace(one, p_corrected=corrected.get(place, float("nan"))) for place, one in enumerate(listed))


Pair = tuple[list[tuple[float, ...]], list[tuple[float, ...]]]


def _every_seed(a: Rows, b: Rows) -> Pair:
    return list(a.values()), list(b.values())


def _common_seeds(a: Rows, b: Rows) -> Pair:
    """The rows of the seeds that both have, side by side."""
    common = [seed for seed in a if seed in b]
    return [a[seed] for seed in common], [b[seed] for seed in common]


def comparison_rows(summary: Summary) -> list[dict[str, Any]]:
    """The differences as rows of `comparisons.jsonl`."""
    return [
        {
            **{k: None if v != v else v for k, v in asdict(d).items() if k != "interval"},
            **d.interval.as_values(),
        }
        for d in summary.differences
    ]


def make_figures(summary: Summary, units: Sequence[Unit], out: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Accuracy bars, and for each fitted task its alpha map and fitting curve (first seed).

    Returns:
        Name -> (figure, the numbers it was drawn from), for `save_figures`.
    """
    from site_interp.plots import AccuracyRow, accuracy_bars, fitting_curve

    figures: dict[str, tuple[Any, dict[str, Any]]] = {}
    names = short_names(summary.tasks)
    metrics: tuple[tuple[Metric, str], ...] = (("prefix_match", "prefix match"), ("first_token", "first token right"))
    for metric, words in metrics:
        rows = [
            AccuracyRow(names.get(c.task, c.task), c.method, c.interval.value, c.interval.low, c.interval.high)
            for task in (*summary.tasks, MEAN)
            for method in summary.methods
            if (c := summary.cell(task, method, metric)) is not None
        ]
        if rows:
            title = f"{units[0].model}, {words}"
            figures[f"accuracy_{metric}"] = (
                accuracy_bars(rows, title=title, metric=words),
                {"metric": metric, "model": units[0].model, "rows": [asdict(row) for row in rows]},
            )
    traces = {}
    for unit in _first_fitted(units, out):
        adapter = Adapter.from_pretrained(adapter_folder(out, unit))
        name = names[unit.task.name]
        figures[f"alpha_{unit.task.name}"] = alpha_figure(unit, adapter.selection.alpha, name)
        if (trace := adapter.selection.trace) is not None:
            traces[name] = trace
    if traces:
        figures["fitting"] = (
            fitting_curve(traces, title=f"{units[0].model}: first-token cross-entropy while alpha was fitted"),
            {"model": units[0].model, "traces": {name: asdict(trace) for name, trace in traces.items()}},
        )
    return figures


def alpha_figure(unit: Unit, alpha: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """The alpha map of a unit with its numbers; `name` is the task's in the title."""
    from site_interp.plots import head_map

    title = f"{name}: alpha of each head ({unit.model}, seed {unit.seed})"
    numbers = {"task": unit.task.name, "seed": unit.seed, "model": unit.model, "alpha": alpha.tolist()}
    return head_map(alpha, title=title), numbers


def _first_fitted(units: Sequence[Unit], out: Path) -> list[Unit]:
    """For each task the first SITE unit whose adapter is there."""
    first: dict[str, Unit] = {}
    for unit in units:
        if unit.method.name == "site" and (adapter_folder(out, unit) / "adapter_config.json").is_file():
            first.setdefault(unit.task.name, unit)
    return list(first.values())
