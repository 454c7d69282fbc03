"""Embedding a task: the plain way (one prompt at a time, logits at all positions), ours, and the floor. Seconds.

    python benchmarks/embed.py [--repetitions N] [--data-dir DIR]

M 50 prompts of 10 demonstrations: bundled/antonym (about 98 tokens) and, with a data folder, fv/ag_news (about 674).
The plain way is timed on the first `PLAIN_PROMPTS` prompts and scaled; both alternate, and medians are taken. The floor
is the operations of the prompts over the rate of a large product `a @ b` measured before and after. Both must give the
same z.
"""

import argparse
import os
import sys

import _plain
import torch
from _machine import matrix_rates, median, operations, report, timed

from site_interp import load_model, load_task
from site_interp.embedding import embed_prompts
from site_interp.prompts import QA, draw_embedding_prompts
from site_interp.tasks import Labelled

PLAIN_PROMPTS = 10
TOLERANCE = 1e-4  # as a share of the largest z


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--data-dir", default=os.environ.get("SITE_INTERP_DATA"))
    options = parser.parse_args()
    model = load_model("smollm2-135m")
    needed, worst = operations(model), 0.0
    numbers: dict[str, object] = {"benchmark": "embed", "repetitions": options.repetitions}
    cases = {"short": "antonym", **({"long": "fv/ag_news"} if options.data_dir else {})}
    for case, name in cases.items():
        task = load_task(name, data_dir=options.data_dir)
        prompts = draw_embedding_prompts(Labelled(task), QA, n_prompts=50, n_shots=10, seed=0)
        few = prompts[:PLAIN_PROMPTS]
        rates, plain, ours = [matrix_rates()], [], []
        for _ in range(options.repetitions):
            slow = timed(lambda few=few: torch.stack([_plain.head_outputs(model, prompt) for prompt in few]))
            fast = timed(lambda prompts=prompts: embed_prompts(model, prompts, progress=lambda _: None))
            plain.append(slow.seconds * len(prompts) / len(few))
            ours.append(fast.seconds)
            worst = max(worst, float((fast.value[: len(few)] - slow.value).abs().max() / slow.value.abs().max()))
            rates.append(matrix_rates())
        by_torch, by_onednn = (median(column) for column in zip(*rates, strict=True))
        lengths = [len(model.token_ids(prompt)) for prompt in prompts]
        floor = sum(needed.prefix(n) + needed.last(n) - 2 * needed.unembedding for n in lengths) / by_torch
        numbers |= {
            f"{case}_tokens": sum(lengths) / len(lengths),
            f"{case}_plain_s": median(plain),
            f"{case}_ours_s": median(ours),
            f"{case}_floor_s": floor,
            f"{case}_speedup": median(plain) / median(ours),
            f"{case}_over_floor": median(ours) / floor,
        }
    report({**numbers, "z_deviation": worst, "torch_gflops": by_torch / 1e9, "onednn_gflops": by_onednn / 1e9})
    if worst > TOLERANCE:
        sys.exit(f"z differs by {worst:.2g} of its largest value; at most {TOLERANCE} is rounding.")


if __name__ == "__main__":
    main()
