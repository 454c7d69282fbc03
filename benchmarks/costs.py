"""What forwards and steps of one token cost by their rows, in tokens of a long prompt: the constants of `--plan`.

    python benchmarks/costs.py

Seconds of n rows are fitted by a straight line, start + row * n, forward on kept prefixes and forward with backward;
medians of alternating repetitions. A token is one of a batch of long prompts, as `--plan` times it.
"""

import statistics

import torch
from _machine import report, timed

from site_interp import load_model, load_task
from site_interp.experiments import plan
from site_interp.experiments.plan import seconds_per_token
from site_interp.injection import Intervention, injected_logits
from site_interp.kept import KeptPrefixes
from site_interp.prefixes import DEFAULT_MEMORY
from site_interp.prompts import QA

ROWS = (1, 4, 10, 20, 40)
REPETITIONS = 9


def main() -> None:
    model = load_model("smollm2-135m")
    inputs = dict.fromkeys(example.input for example in load_task("antonym").train)
    prompts = [QA.zero_shot(text) for text in inputs][: max(ROWS)]
    kept = KeptPrefixes(model, prompts, DEFAULT_MEMORY)
    target = torch.zeros(model.n_layers, model.n_heads, model.d_head)

    def run(n_rows: int, *, backward: bool) -> None:
        logits = torch.zeros(n_rows, model.n_layers, model.n_heads, requires_grad=backward)
        for prefixes, _ in kept.batches(prompts[:n_rows], n_rows):
            rows = target.expand(len(prefixes.rows), *target.shape)
            out = injected_logits(prefixes, Intervention(rows, torch.sigmoid(logits[: len(rows)])))
            if backward:
                out.logsumexp(dim=-1).sum().backward()

    seconds: dict[tuple[bool, int], list[float]] = {}
    tokens = []
    with model.frozen():
        for _ in range(REPETITIONS + 1):
            tokens.append(seconds_per_token(model))
            for n_rows in ROWS:
                for backward in (False, True):
                    with torch.set_grad_enabled(backward):
                        spent = timed(lambda n=n_rows, b=backward: run(n, backward=b)).seconds
                    seconds.setdefault((backward, n_rows), []).append(spent)
    token = statistics.median(tokens[1:])
    numbers: dict[str, object] = {"benchmark": "costs", "token_ms": 1000 * token, "repetitions": REPETITIONS}
    for name, backward in (("forward", False), ("step", True)):
        middle = [statistics.median(seconds[backward, n_rows][1:]) for n_rows in ROWS]
        row, start = statistics.linear_regression(ROWS, middle)
        numbers |= {f"{name}_start": start / token, f"{name}_row": row / token}
    numbers["assumed"] = [plan.FORWARD_START, plan.FORWARD_ROW, plan.STEP_START, plan.STEP_ROW]
    report(numbers)


if __name__ == "__main__":
    main()
