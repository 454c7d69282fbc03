"""Which fit settings validate best: the numbers behind the default preset. One JSON line per setting.

    python benchmarks/presets.py [DATA_DIR] [OUT.jsonl]

With a data folder the tasks are ten of the function-vector tasks, without one the bundled demo suite. Only training and
validation examples are looked at. Embeddings (M 50, N 10, seed 0) are made once and shared; settings that OUT.jsonl
already holds are skipped. Accuracy is that of the first answer token on the validation examples.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from site_interp import FitSettings, Intervention, embed_task, encode_prompts, load_model, load_suite, load_task
from site_interp.fit_plan import FitRun
from site_interp.fitting import fit_selections
from site_interp.injection import injected_logits
from site_interp.tasks import Labelled

TASKS = (
    "antonym", "country-capital", "capitalize", "present-past", "singular-plural",
    "choose_first_of_3", "next_item", "english-french", "person-sport", "sentiment",
)  # fmt: skip
SETTINGS = (
    FitSettings(n_steps=400, batch_size=1, lr=0.2),
    FitSettings(n_steps=400, batch_size=4, lr=0.2),
)


@torch.no_grad()
def validation_accuracy(model, run, selection):
    """Share of validation examples whose first answer token comes out on top."""
    examples = run.labelled.valid(range(run.labelled.n_valid))[:100]
    template = run.embedding.template
    prompts = [template.zero_shot(example.input) for example in examples]
    intervention = Intervention(run.embedding.mean[None], selection.alpha[None])
    n_right = 0
    for prefixes in encode_prompts(model, prompts):
        top = injected_logits(prefixes, intervention).argmax(-1).tolist()
        for row, token in zip(prefixes.rows.tolist(), top, strict=True):
            n_right += token == model.answer_ids(prompts[row], template.answer(examples[row].answer))[0]
    return n_right / len(examples)


def main(data_dir: str | None, out: Path) -> None:
    """Fit every setting that is not in the file yet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line)["settings"] for line in out.read_text().splitlines()] if out.exists() else []
    model = load_model("smollm2-135m")
    names = [f"fv/{name}" for name in TASKS]
    tasks = [load_task(name, data_dir=data_dir) for name in names] if data_dir else load_suite("demo")
    runs = [FitRun(embed_task(model, task), Labelled(task), 0) for task in tasks]
    for settings in SETTINGS:
        if asdict(settings) in done:
            continue
        start = time.perf_counter()
        selections = fit_selections(model, runs, settings=settings)
        rows = {
            run.labelled.task: {
                "valid_loss": round(min(selection.trace.valid_loss), 4),
                "last_loss": round(selection.trace.valid_loss[-1], 4),
                "chosen_step": selection.trace.chosen_step,
                "valid_accuracy": round(validation_accuracy(model, run, selection), 4),
            }
            for run, selection in zip(runs, selections, strict=True)
        }
        means = {key: sum(row[key] for row in rows.values()) / len(rows) for key in ("valid_loss", "valid_accuracy")}
        line = {"settings": asdict(settings), **means, "seconds": round(time.perf_counter() - start), "tasks": rows}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None, Path(sys.argv[2] if len(sys.argv) > 2 else "runs/presets.jsonl"))
