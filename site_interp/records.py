"""What is kept of one scored unit (model, task, method, variant, seed), and the hash that names the unit."""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Literal

from site_interp.metrics import METRICS, Metric


@dataclass(frozen=True, kw_only=True)
class Record:
    """One metric of one unit (model, task, method, variant, seed), or the reason why the unit has none.

    Args:
        model, model_fingerprint, dtype: What was run.
        task, split_hash: What it was scored on.
        method, variant, seed: How the model was adapted; `variant` is `key=value,...`, empty for the defaults.
        metric: Which score; None where `status` is not ok.
        value, ci_low, ci_high: Mean of `scores` and its interval; fractions, or nats for answer_log_prob.
        n: Number of test examples.
        scores: One score per test example, in test order.
        labels: Labelled examples the method saw, those of validation included.
        n_parameters: Trained scalars.
        n_prompt_tokens: Mean tokens per test prompt.
        fit_seconds, eval_seconds, peak_memory_mb: Cost.
        unit_hash: `unit_hash` of everything that changes the numbers.
        status, reason: `inapplicable` counts as done; `failed` is tried again. The reason stands where not ok.
        version: Version of this package.

    Raises:
        ValueError: Fields that contradict each other, or scores that are not finite.
    """

    model: str
    model_fingerprint: str
    dtype: str
    task: str
    split_hash: str
    method: str
    variant: str = ""
    seed: int
    metric: Metric | None = None
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    scores: tuple[float, ...] | None = None
    labels: int | None = None
    n_parameters: int | None = None
    n_prompt_tokens: int | float | None = None
    fit_seconds: int | float | None = None
    eval_seconds: int | float | None = None
    peak_memory_mb: int | float | None = None
    unit_hash: str
    status: Literal["ok", "inapplicable", "failed"] = "ok"
    reason: str = ""
    version: str

    def __post_init__(self) -> None:
        where = f"Cannot make a record of {self.method} on {self.task}"
        if self.status != "ok":
            if self.value is not None or self.scores is not None or not self.reason:
                raise ValueError(f"{where}: status is {self.status}. Give a reason, and neither value nor scores.")
            return
        if self.metric not in METRICS or self.value is None or self.scores is None or len(self.scores) != self.n:
            raise ValueError(f"{where}: status is ok. Give a metric of {METRICS}, a value and n scores.")
        if not all(map(math.isfinite, (self.value, *self.scores))):
            raise ValueError(f"{where}: {self.metric} is nan or infinite. Record the unit as failed.")


def unit_hash(**what: object) -> str:
    """A hash of everything that changes a unit's numbers; the order of the arguments does not matter.

    Raises:
        ValueError: An argument is nan, infinite or no JSON value.

    Example:
        >>> unit_hash(task="bundled/antonym", seed=0) == unit_hash(seed=0, task="bundled/antonym")
        True
    """
    try:
        text = json.dumps(what, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Cannot hash a unit: {error}. Describe it by texts, finite numbers and lists.") from error
    return hashlib.sha256(text.encode()).hexdigest()[:16]
