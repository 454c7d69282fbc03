"""What a run will do, and about how long it takes on this machine, before any of it is done."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from site_interp.baselines import ICL, SITE, Echo, Majority, Method
from site_interp.evaluation import MAX_NEW_TOKENS
from site_interp.model import Model
from site_interp.prompts import QA, Template
from site_interp.records import unit_hash
from site_interp.tasks import Task

# Cost of one token of one row in its own step, next to one token of a long prefix: attention, logits and weights that
# are read for few rows (measured on smollm2-135m, 2 cores: 2.0, 2.8 and 6 ms).
LAST_TOKEN, TRAINED_TOKEN = 1.4, 3.0
USUAL_ANSWER = 12  # tokens a row is decoded for, early stops included


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
    """

    task: Task
    method: Method
    seed: int
    n_test: int | None
    model: str
    fingerprint: str
    dtype: str

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
        )

    @property
    def label(self) -> str:
        """The unit in words, for progress lines."""
        variant = f"({self.method.variant()})" if self.method.variant() else ""
        return f"{self.task.name} {self.method.name}{variant} seed {self.seed}"


def plan_units(
    model: Model, tasks: Sequence[Task], methods: Sequence[Method], seeds: Sequence[int], n_test: int | None
) -> list[Unit]:
    """Every unit of a run; a method that takes no seed runs once, as seed 0."""
    return [
        Unit(task, method, seed, n_test, model.name, model.fingerprint.id, model.dtype_name)
        for method in methods
        for task in tasks
        for seed in (seeds if method.seeded else (0,))
    ]


def token_cost(model: Model, unit: Unit) -> float:
    """The work of a unit in prefix tokens: what it costs to run so many tokens of long prompts."""
    method, task = unit.method, unit.task
    if isinstance(method, Echo | Majority):
        return 1.0
    template = getattr(method, "template", QA)
    short = _mean_tokens(model, [template.zero_shot(example.input) for example in task.test[:20]])
    n_test = len(task.test_examples(unit.n_test))
    answered = n_test * USUAL_ANSWER * LAST_TOKEN
    if isinstance(method, ICL):
        return n_test * (short + method.n_shots * _shot_tokens(model, task, template)) + answered
    if not isinstance(method, SITE):
        return n_test * short + answered
    fitting = method.fitting
    embedding = method.n_prompts * (short + method.n_shots * _shot_tokens(model, task, template))
    rows = fitting.n_steps * fitting.batch_size
    n_valid = min(fitting.n_valid, len(task.valid))
    prefixes = (min(rows, len(task.train)) + n_valid) * short
    validations = -(-fitting.n_steps // fitting.validate_every) * n_valid * LAST_TOKEN
    return embedding + prefixes + rows * TRAINED_TOKEN + validations + n_test * short + answered


def _shot_tokens(model: Model, task: Task, template: Template) -> float:
    return _mean_tokens(model, [template.few_shot([example], "") for example in task.train[:20]])


def _mean_tokens(model: Model, texts: Sequence[str]) -> float:
    return sum(len(model.token_ids(text)) for text in texts) / max(len(texts), 1)


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
        >>> describe_minutes(20), describe_minutes(600)
        ('under a minute', 'about 10 minutes')
    """
    return "under a minute" if seconds < 55 else f"about {max(1, round(seconds / 60))} minutes"


__all__ = ["MAX_NEW_TOKENS", "Unit", "describe_minutes", "plan_units", "seconds_per_token", "token_cost"]
