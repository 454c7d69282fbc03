"""Peak memory of fitting when the number of runs doubles, against the budget plus the model. Linux only.

    python benchmarks/memory.py [--data-dir DIR]

Each measurement is a process of its own: load the model, note the resident memory (libraries included: "the model"),
reset the kernel's high-water mark, fit so many runs for `N_STEPS` steps with 100 validation examples, read the mark.
Short prompts are bundled/antonym; long ones fv/ag_news, if there is a data folder. Peaks above 1.1 times of budget
plus model are a failure.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from _machine import report

N_STEPS, LIMIT = 20, 1.1
MIB = 1 << 20
CASES = [("antonym", 256, 10), ("antonym", 256, 20), ("antonym", 256, 40),
         ("fv/ag_news", 1024, 5), ("fv/ag_news", 1024, 10), ("fv/ag_news", 1024, 20)]  # fmt: skip


def resident(field: str) -> int:
    """Resident memory now (VmRSS) or at its highest since the last reset (VmHWM), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def child(name: str, budget: int, n_runs: int, data_dir: str | None) -> None:
    """Fit and print resident memory before and at its highest."""
    from site_interp import FitSettings, embed_task, load_model, load_task
    from site_interp.fit_plan import FitRun
    from site_interp.fitting import fit_selections
    from site_interp.tasks import Labelled

    model = load_model("smollm2-135m")
    task = load_task(name, data_dir=data_dir)
    embedding = embed_task(model, task, n_prompts=2, progress=lambda _: None)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    runs = [FitRun(embedding, Labelled(task), seed) for seed in range(n_runs)]
    fit_selections(model, runs, settings=FitSettings(n_steps=N_STEPS, validate_every=10), memory=budget * MIB)
    print(json.dumps([before, resident("VmHWM")]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", default=os.environ.get("SITE_INTERP_DATA"))
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        name, budget, n_runs = options.child
        return child(name, int(budget), int(n_runs), options.data_dir)
    found = {}
    for name, budget, n_runs in CASES:
        if "/" in name and not options.data_dir:
            continue
        command = [sys.executable, __file__, "--child", name, str(budget), str(n_runs)]
        command += ["--data-dir", options.data_dir] if options.data_dir else []
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        before, peak = json.loads(out.splitlines()[-1])
        share = peak / (before + budget * MIB)
        print(f"{name}, {n_runs} runs, budget {budget} MiB: model {before / MIB:.0f}, peak {peak / MIB:.0f} MiB, "
              f"{share:.2f} of budget plus model", file=sys.stderr)  # fmt: skip
        found[f"{name} x{n_runs}"] = round(share, 3)
    report({"benchmark": "memory", "peak_over_budget_plus_model": found, "limit": LIMIT})
    if max(found.values()) > LIMIT:
        sys.exit("Peak memory went beyond the budget.")
    return None


if __name__ == "__main__":
    main()
