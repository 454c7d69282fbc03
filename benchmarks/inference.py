"""What a query costs under each method: prompts encoded and answers generated, nothing scored.

    python benchmarks/inference.py [OUT.jsonl]

One bundled task, 50 queries in one batch, at most 20 new tokens up to the end of the line. Fits are cut to a few steps:
what was fitted has no influence on the cost of asking, except through the length of the answers, so every method writes
exactly N_NEW tokens. Repetitions are interleaved; the median of each method is kept. Run it with nothing else running.
"""

import json
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from site_interp import load_model, load_task
from site_interp.baselines import known_methods, named_method
from site_interp.baselines.method import ChangesModel
from site_interp.evaluation import MAX_ROWS
from site_interp.injection import injected_text
from site_interp.prefixes import DEFAULT_MEMORY, iterate_prefixes
from site_interp.selection import PAPER
from site_interp.tasks import Labelled

TASK, N_QUERIES, N_NEW, REPETITIONS = "antonym", 50, 8, 5
METHODS = (
    "zero_shot",
    "icl",
    "many_shot_icl",
    "site:n_steps=2,n_prompts=2",
    "function_vector:n_prompts=2,n_queries=2",
    "task_vector:n_prompts=2",
    "mtv:n_steps=2,n_prompts=2",
    "i2cl:n_epochs=1",
    "ltv:n_steps=2,n_prompts=2",
    "lora:n_examples=8,n_epochs=1",
    "ia3:n_examples=8,n_epochs=1",
)


@torch.no_grad()
def ask(model, fitted, prompts):
    """Generate exactly N_NEW tokens for every prompt."""
    with fitted.changing(model) if isinstance(fitted, ChangesModel) else nullcontext(model) as asked:
        for prefixes in iterate_prefixes(asked, prompts, memory=DEFAULT_MEMORY // 2, max_rows=MAX_ROWS):
            injected_text(prefixes, fitted.intervention(), max_new_tokens=N_NEW, stop="\0")


def main(out: Path) -> None:
    """Time every method."""
    model, task = load_model("smollm2-135m"), load_task(TASK)
    known = known_methods(n_shots=10, n_prompts=50, fitting=PAPER)
    inputs = [example.input for example in task.test_examples(N_QUERIES)]
    fitted = [named_method(text, known).fit(model, Labelled(task), 0) for text in METHODS]
    prompts = [one.prompts(inputs) for one in fitted]
    seconds = {one.name: [] for one in fitted}
    for repetition in range(REPETITIONS + 1):  # the first warms up
        for one, texts in zip(fitted, prompts, strict=True):
            start = time.perf_counter()
            ask(model, one, texts)
            if repetition:
                seconds[one.name].append(time.perf_counter() - start)
    plain = statistics.median(seconds["zero_shot"])
    lines = [
        {
            "method": one.name,
            "task": task.name,
            "n": len(inputs),
            "new_tokens": N_NEW,
            "prompt_tokens": sum(len(model.token_ids(text)) for text in texts) / len(texts),
            "seconds_per_1000": 1000 * statistics.median(seconds[one.name]) / len(inputs),
            "lowest": 1000 * min(seconds[one.name]) / len(inputs),
            "highest": 1000 * max(seconds[one.name]) / len(inputs),
            "ratio": statistics.median(seconds[one.name]) / plain,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        for one, texts in zip(fitted, prompts, strict=True)
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for line in lines:
        print(f"{line['method']:16} {line['prompt_tokens']:7.1f} {line['seconds_per_1000']:8.1f} {line['ratio']:6.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/inference.jsonl"))
