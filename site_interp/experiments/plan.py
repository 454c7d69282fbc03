"""What a run will do, and about how long it takes on this machine, before any of it is done."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from site_interp.baselines import (
    I2CL,
    IA3,
    ICL,
    LTV,
    MTV,
    SITE,
    FitsTogether,
    FunctionVector,
    LoRA,
    ManyShotICL,
    Method,
    TaskVector,
)
from site_interp.errors import UserError
from site_interp.evaluation import MAX_ROWS, check_seeds
from site_interp.model import Model
from site_interp.prefixes import FORWARD_START
from site_interp.prompts import QA
from site_interp.records import unit_hash
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled, Task, held_out

# One token of n rows, in tokens of a long prompt: starting (reading the weights), then so much for each row. Starting a
# forward is FORWARD_START. Measured by benchmarks/costs.py.
FORWARD_ROW = 1.4
STEP_START, STEP_ROW = 94.0, 3.3
USUAL_ANSWER = 12  # tokens a row is decoded for, early stops included
WITHOUT_MODEL = ("echo", "majority", "knn")  # methods that answer without the model


@dataclass(frozen=True)
class Unit:
    """One method on one task with one seed: the smallest piece that is recorded, skipped or tried again.

    Args:
        task: Where it is scored.
        method: What is scored.
        seed: Seed of the method; 0 for one that takes none.
        n_test: Test examples.
        model: The model's name.
        fingerprint: The model's fingerprint id.
        dtype: The model's precision.
        together: How many units like it are fitted in one batch, for the estimate of its cost.
        n_labels: Budget of labelled examples, validation included; None for all there are.
    """

    task: Task
    method: Method
    seed: int
    n_test: int | None
    model: str
    fingerprint: str
    dtype: str
    together: int = 1
    n_labels: int | None = None

    def labelled(self) -> Labelled:
        """What the method sees of the task.

        Raises:
            UserError: The task has fewer labelled examples than the budget.
        """
        return Labelled(self.task, self.n_labels, seed=self.seed, holds_out=self.method.needs == "valid")

    def sizes(self) -> tuple[int, int]:
        """Training and validation examples that the method has within its budget."""
        if self.n_labels is None:
            return len(self.task.train), len(self.task.valid)
        n_held_out = len(held_out(self.n_labels)) if self.method.needs == "valid" else 0
        return self.n_labels - n_held_out, n_held_out

    @property
    def variant(self) -> str:
        """The method's settings that are not the default, and the budget of labels."""
        budget = [] if self.n_labels is None else [f"labels={self.n_labels}"]
        return ",".join(sorted(filter(None, [*budget, *self.method.variant().split(",")])))

    @property
    def hash(self) -> str:
        """A hash of everything that changes its numbers, and of nothing else."""
        return unit_hash(
            model_fingerprint=self.fingerprint,
            dtype=self.dtype,
            task=self.task.name,
            split_hash=self.task.split_hash,
            method=self.method.name,
            revision=self.method.revision,
            settings=dict(self.method.settings()),
            seed=self.seed,
            n_test=len(self.task.test_examples(self.n_test)),
            **({} if self.n_labels is None else {"n_labels": self.n_labels}),
        )

    @property
    def fit_hash(self) -> str:
        """The same for what is fitted, whatever it is scored on."""
        return replace(self, n_test=0).hash

    @property
    def label(self) -> str:
        """The unit in words, for progress lines."""
        variant = f"({self.variant})" if self.variant else ""
        return f"{self.task.name} {self.method.name}{variant} seed {self.seed}"


def plan_units(
    model: Model,
    tasks: Sequence[Task],
    methods: Sequence[Method],
    seeds: Sequence[int],
    n_test: int | None,
    budgets: Sequence[int | None] = (None,),
) -> list[Unit]:
    """Every unit of a run; a method that takes no seed runs once, as seed 0.

    Within a budget of labels a method that looks at any runs with every seed, which decides which ones these are, and
    with no more demonstrations than the budget leaves.

    Raises:
        UserError: No seeds, or seeds that are negative or stand twice.
    """
    check_seeds(seeds)
    units = {}
    for budget in budgets:
        for method in methods:
            n_labels = None if method.needs == "nothing" else budget
            seeded = method.seeded or n_labels is not None
            for task in tasks:
                for seed in seeds if seeded else (0,):
                    names = (model.name, model.fingerprint.id, model.dtype_name)
                    own = method if n_labels is None else within_budget(method, n_labels)
                    together = own.together if isinstance(own, FitsTogether) else 1
                    together = min(together, len(tasks) * len(seeds))
                    unit = Unit(task, own, seed, n_test, *names, together, n_labels)
                    units[unit.hash] = unit  # what looks at no label stands once
    return list(units.values())


def within_budget(method: Method, n_labels: int) -> Method:
    """The method with at most as many demonstrations as a budget of labels leaves it.

    A prompt of a task embedding has one training example more, as its query.
    """
    n_train = n_labels - (len(held_out(n_labels)) if method.needs == "valid" else 0)
    most = {"n_shots": n_train - (method.needs == "valid"), "n_examples": n_train}
    fewer = {name: max(1, n) for name, n in most.items() if getattr(method, name, 0) > n}
    return replace(method, **fewer) if fewer else method  # type: ignore[type-var]


@dataclass(frozen=True)
class Cost:
    """The work of a unit in prefix tokens: what it costs to run so many tokens of long prompts.

    Args:
        embedding: The prompts of the task embedding; 0 for a method without.
        fitting: Steps and validations.
        scoring: Prompts, decoding and answers of the test examples.
    """

    embedding: float
    fitting: float
    scoring: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.embedding + self.fitting + self.scoring


def token_cost(model: Model, unit: Unit) -> float:
    """All the work of a unit, in prefix tokens."""
    return unit_cost(model, unit).total


def unit_cost(model: Model, unit: Unit) -> Cost:
    """The work of a unit, part by part."""
    method, task = unit.method, unit.task
    if method.name in WITHOUT_MODEL:
        return Cost(0.0, 0.0, 1.0)
    template = getattr(method, "template", QA)
    short = _mean_tokens(model, [template.zero_shot(example.input) for example in task.test[:20]])
    long = short + getattr(method, "n_shots", 0) * _mean_tokens(
        model, [template.few_shot([example], "") for example in task.train[:20]]
    )
    n_test = len(task.test_examples(unit.n_test))
    answers = (USUAL_ANSWER + 1) * row_cost(n_test, -(-n_test // MAX_ROWS))
    if isinstance(method, ICL):
        return Cost(0.0, 0.0, n_test * long + answers)
    if isinstance(method, ManyShotICL):
        # Every token of an answer attends to all demonstrations: measured at five times a short prompt's.
        return Cost(0.0, 0.0, -(-n_test // MAX_ROWS) * method.max_tokens + n_test * short + 5 * answers)
    n_read = method.n_read(task.name) if isinstance(method, FitsTogether) else getattr(method, "n_prompts", 0)
    return Cost(n_read * long, _fitting_cost(model, unit, short, long), n_test * short + answers)


def _fitting_cost(model: Model, unit: Unit, short: float, long: float) -> float:
    """What a fit takes beside its embedding; `short` and `long` are tokens of a prompt without and with shots."""
    method = unit.method
    n_train, n_there = unit.sizes()
    n_valid = min(100, n_there)
    a_round = row_cost(n_valid, -(-n_valid // MAX_ROWS))  # one token of every validation prompt
    if isinstance(method, SITE) and method.heads == "all":
        return 0.0
    if isinstance(method, SITE | LTV):
        fitting = method.fitting if isinstance(method, SITE) else FitSettings(n_steps=method.n_steps)
        together = unit.together
        n_valid = min(fitting.n_valid, n_there)
        prompts = (min(fitting.n_steps * fitting.batch_size, n_train) + n_valid) * short
        steps = fitting.n_steps * (STEP_START / together + STEP_ROW * fitting.batch_size)
        return prompts + steps + -(-fitting.n_steps // fitting.validate_every) * row_cost(n_valid, 1 / together)
    if isinstance(method, MTV):
        steps = method.n_steps * row_cost(method.n_samples, 1 / unit.together)
        steps += (method.n_steps // method.validate_every) * a_round
        return (min(method.n_steps, n_train) + n_valid) * short + steps
    if isinstance(method, FunctionVector | TaskVector):
        queries = min(method.n_queries, n_valid) if isinstance(method, FunctionVector) else 0
        sweep = queries * (long + model.n_layers * model.n_heads / 2)  # a branch runs half of the layers on average
        return n_valid * short + sweep + model.n_layers * a_round
    if isinstance(method, LoRA | IA3 | I2CL):
        n_examples = min(method.n_examples, n_train)
        n_steps = method.n_epochs * -(-n_examples // method.batch_size)
        n_tokens = method.n_epochs * n_examples * (short + USUAL_ANSWER / 4)
        return 3 * (n_tokens + FORWARD_START * n_steps / unit.together)  # backward is twice the forward
    return 0.0


def row_cost(n_rows: int | float, n_forwards: int | float) -> float:
    """One token of so many rows in so many forwards, in prefix tokens."""
    return FORWARD_START * n_forwards + FORWARD_ROW * n_rows


def _mean_tokens(model: Model, texts: Sequence[str]) -> float:
    return sum(_n_tokens(model, text) for text in texts) / max(len(texts), 1)


def _n_tokens(model: Model, text: str) -> int:
    """Tokens of a text; one that the model cannot take is refused when its unit runs, not while costs are counted."""
    try:
        return len(model.token_ids(text))
    except UserError:
        return model.n_ctx


@torch.no_grad()
def seconds_per_token(model: Model) -> float:
    """Seconds for one token of a long prompt in a batch, timed on this machine (about a second)."""
    ids = torch.full((8, 64), min(5, model.d_vocab - 1), device=model.device)
    model.forward(ids[:, :8], torch.ones_like(ids[:, :8]), n_logits=1)
    start = time.perf_counter()
    model.forward(ids, torch.ones_like(ids), n_logits=1)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return (time.perf_counter() - start) / ids.numel()


def describe_minutes(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> describe_minutes(20.0), describe_minutes(600.0)
        ('under a minute', 'about 10 minutes')
    """
    if seconds < 90:
        return "under a minute" if seconds < 55 else "about a minute"
    return f"about {round(seconds / 60)} minutes"


__all__ = [
    "Cost",
    "Unit",
    "describe_minutes",
    "plan_units",
    "row_cost",
    "seconds_per_token",
    "token_cost",
    "unit_cost",
]
