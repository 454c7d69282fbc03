"""Fitting: (a) the plain way, (b) one run, (c) many runs in one batch, and the floor. Seconds per run, paper preset.

    python benchmarks/fit.py [--case short|forty|long] [--repetitions N] [--data-dir DIR]

(a) is one prompt at a time: whole forwards and backwards through TransformerLens hooks, weights frozen, one validation
example at a time. It is timed on `PLAIN_STEPS` steps and `PLAIN_VALID` validation examples and scaled to the preset;
(b) and (c) are `fit_selections` from start to end. The three alternate, and medians are taken. `train` is steps with
their prefixes, validation left out. The floor is the operations of (c), each prompt computed once, over the rate of
a large product `a @ b` measured before and after; oneDNN's rate stands beside it. Training losses of all three must
agree. short: ten bundled word tasks; forty: those with four seeds; long: fv/ag_news with ten seeds.
"""

import argparse
import sys
import time
from itertools import pairwise

import _plain
from _machine import matrix_rates, median, operations, report, timed

from site_interp import embed_task, load_model, load_task
from site_interp.fit_plan import FitRun, draw_plan
from site_interp.fitting import fit_selections
from site_interp.selection import PAPER
from site_interp.tasks import Labelled

SHORT = (
    "antonym", "capitalize", "country-capital", "english-french", "english-german",
    "next_item", "present-past", "singular-plural", "synonym", "word_length",
)  # fmt: skip
CASES = {"short": (SHORT, 1), "forty": (SHORT, 4), "long": (("fv/ag_news",), 10)}
PLAIN_STEPS, PLAIN_VALID = 48, 32
N_PROMPTS = 5  # the embedding's quality changes no time: a small one is enough
LOSS_TOLERANCE = 1e-3


def plain_way(model, run):
    """Seconds of the training and of the validation of one run, scaled to the preset; and the first losses."""
    plan = draw_plan(model, run, PAPER)
    fit = _plain.Fit(model, run.embedding.mean, PAPER.lr)
    with model.frozen():
        prompt, (answer, *_) = plan.steps[0][0]
        fit.step(prompt, answer)  # the first call pays for set-up
        fit = _plain.Fit(model, run.embedding.mean, PAPER.lr)
        steps = [
            timed(lambda text=text, ids=ids: fit.step(text, ids[0])) for ((text, ids),) in plan.steps[:PLAIN_STEPS]
        ]
        valid = (
            timed(lambda: fit.validate([(text, ids[0]) for text, ids in plan.valid[:PLAIN_VALID]])).seconds
            / PLAIN_VALID
        )
    training = PAPER.n_steps * sum(step.seconds for step in steps) / len(steps)
    validation = (PAPER.n_steps // PAPER.validate_every) * len(plan.valid) * valid
    return training, validation, [step.value for step in steps]


def our_way(model, runs):
    """Seconds per run of training (prefixes included) and of everything; and the first losses of the first run."""
    moments = [time.perf_counter()]
    selections = fit_selections(model, runs, settings=PAPER, progress=lambda _: moments.append(time.perf_counter()))
    total = time.perf_counter() - moments[0]
    steps = [after - before for before, after in pairwise(moments)]
    n_fits = len(steps) // PAPER.n_steps  # runs that did not fit in the budget together were fitted in parts
    validating = [s for i, s in enumerate(steps) if (i % PAPER.n_steps + 1) % PAPER.validate_every == 0]
    others = [s for i, s in enumerate(steps) if (i % PAPER.n_steps + 1) % PAPER.validate_every]
    validation = sum(validating) - len(validating) * median(others)
    print(f"  {len(runs)} runs in {n_fits} parts: {total:.1f} s, of it validation {validation:.1f} s", file=sys.stderr)
    return (total - validation) / len(runs), total / len(runs), selections[0].trace.train_loss[:PLAIN_STEPS]


def floor_operations(model, runs):
    """Operations of all runs: distinct prompts once, steps, validations."""
    needed, plans = operations(model), [draw_plan(model, run, PAPER) for run in runs]
    length = {}
    for plan in plans:
        for prompt in [prompt for step in plan.steps for prompt, _ in step] + [prompt for prompt, _ in plan.valid]:
            length.setdefault(prompt, len(model.token_ids(prompt)))
    prefixes = sum(needed.prefix(n) for n in length.values())
    steps = sum(needed.step(length[prompt]) for plan in plans for step in plan.steps for prompt, _ in step)
    rounds = PAPER.n_steps // PAPER.validate_every
    return prefixes + steps + rounds * sum(needed.last(length[prompt]) for plan in plans for prompt, _ in plan.valid)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, default="short")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    names, n_seeds = CASES[options.case]
    model = load_model("smollm2-135m")
    tasks = [load_task(name, data_dir=options.data_dir) for name in names]
    embeddings = [embed_task(model, task, n_prompts=N_PROMPTS, progress=lambda _: None) for task in tasks]

    def runs():
        return [FitRun(e, Labelled(t), seed) for seed in range(n_seeds) for t, e in zip(tasks, embeddings, strict=True)]

    rates, plain, one, together, losses = [matrix_rates()], [], [], [], []
    for _ in range(options.repetitions):
        training, validation, plain_losses = plain_way(model, runs()[0])
        plain.append((training, training + validation))
        found = our_way(model, runs()[:1])
        one.append(found[:2])
        many = our_way(model, runs())
        together.append(many[:2])
        losses += [abs(a - b) for ours in (found[2], many[2]) for a, b in zip(plain_losses, ours, strict=True)]
        rates.append(matrix_rates())
    seconds = {
        f"{name}_{part}_s": median([value[index] for value in values])
        for name, values in (("plain", plain), ("one", one), ("together", together))
        for index, part in enumerate(("train", "all"))
    }
    by_torch, by_onednn = (median(column) for column in zip(*rates, strict=True))
    needed = floor_operations(model, runs()) / len(runs())
    floor = needed / by_torch
    report(
        {
            "benchmark": "fit",
            "case": options.case,
            "n_runs": len(runs()),
            **seconds,
            "floor_s": floor,
            "one_speedup": seconds["plain_all_s"] / seconds["one_all_s"],
            "together_speedup": seconds["plain_all_s"] / seconds["together_all_s"],
            "one_train_speedup": seconds["plain_train_s"] / seconds["one_train_s"],
            "together_train_speedup": seconds["plain_train_s"] / seconds["together_train_s"],
            "together_over_floor": seconds["together_all_s"] / floor,
            "together_over_onednn_floor": seconds["together_all_s"] * by_onednn / needed,
            "loss_deviation": max(losses),
            "torch_gflops": by_torch / 1e9,
            "onednn_gflops": by_onednn / 1e9,
            "repetitions": options.repetitions,
        }
    )
    if max(losses) > LOSS_TOLERANCE:
        sys.exit(f"Training losses differ by {max(losses):.2g} nats; at most {LOSS_TOLERANCE} is rounding.")


if __name__ == "__main__":
    main()
