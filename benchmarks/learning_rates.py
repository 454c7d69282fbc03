"""Which step sizes validate best for the baselines that are trained: the numbers behind their defaults.

    python benchmarks/learning_rates.py DATA_DIR [OUT.jsonl]

Two function-vector tasks that no table of docs/results.md holds, three or more step sizes a method, one seed, at most
300 training examples in two passes (LoRA, (IA)^3) or 400 steps (LTV). Only training and validation examples are looked
at. One JSON line for each fit; what OUT.jsonl already holds is skipped.
"""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from site_interp import IA3, LTV, LoRA, encode_prompts, load_model, load_task
from site_interp.baselines.method import ChangesModel
from site_interp.scoring import answer_logits
from site_interp.tasks import Labelled

TASKS = ("english-spanish", "landmark-country")
GRID = {LoRA: (3e-4, 1e-3, 3e-3, 1e-2), IA3: (3e-3, 1e-2, 3e-2), LTV: (0.01, 0.05, 0.2)}
N_VALID = 100


@torch.no_grad()
def validation_choices(model, task, fitted):
    """The token that comes first for each validation example, and the one that should."""
    examples = task.valid[:N_VALID]
    prompts = list(fitted.prompts([example.input for example in examples]))
    with fitted.changing(model) if isinstance(fitted, ChangesModel) else nullcontext(model) as asked:
        chosen = [0] * len(prompts)
        for prefixes in encode_prompts(asked, prompts):
            one = [[0]] * len(prefixes)  # logits of the last prompt token only
            top = answer_logits(prefixes, one, fitted.intervention())[:, 0].argmax(-1).tolist()
            for row, token in zip(prefixes.rows.tolist(), top, strict=True):
                chosen[row] = token
    right = [
        model.answer_ids(prompt, fitted.template.answer(example.answer))[0]
        for prompt, example in zip(prompts, examples, strict=True)
    ]
    return chosen, right


def main(data_dir: str, out: Path) -> None:
    """Fit what is not in the file yet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(line["method"], line["lr"], line["task"]) for line in lines}
    model = load_model("smollm2-135m")
    for name in TASKS:
        task = load_task(f"fv/{name}", data_dir=data_dir)
        for method, rates in GRID.items():
            for lr in rates:
                if (method.name, lr, task.name) in done:
                    continue
                start = time.perf_counter()
                fitted = method(lr=lr).fit(model, Labelled(task), 0)
                seconds = time.perf_counter() - start
                chosen, right = validation_choices(model, task, fitted)
                train = fitted.notes.get("train_loss", [])
                line = {
                    "method": method.name,
                    "lr": lr,
                    "task": task.name,
                    "valid_loss": round(min(fitted.notes["valid_loss"]), 4),
                    "valid_accuracy": sum(map(int.__eq__, chosen, right)) / len(right),
                    "distinct_answers": len(set(chosen)),
                    "distinct_right": len(set(right)),
                    "first_losses": [round(loss, 3) for loss in train[:5]],
                    "last_losses": [round(loss, 3) for loss in train[-5:]],
                    "n_valid": len(right),
                    "seconds": round(seconds),
                }
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "results/learning_rates.jsonl"))
