"""What the paper's main table would take on Llama-3.1-8B: the work of the plans of docs/reproduce.md, in GPU hours.

    python benchmarks/reproduce.py DATA_DIR

Nothing is run: units and tokens are those that `site-interp run --plan` counts, with the bundled model's tokenizer,
whose tokens are about as long as those of Llama. Hours follow from 2 operations for each weight and token, at
UTILISATION of the peak of one H100 in bf16. Writes the table of docs/reproduce.md between its marks.
"""

import re
import sys
from pathlib import Path

from site_interp import load_model, load_suite
from site_interp.baselines import known_methods, named_method
from site_interp.experiments.plan import plan_units, token_cost
from site_interp.experiments.tables import markdown
from site_interp.selection import PAPER

PAGE = Path(__file__).parents[1] / "docs" / "reproduce.md"
SUITES = {"fv": 10, "anli": 3, "mmlu_pro": 3, "bbh": 3}  # and their shots
METHODS = ("icl", "i2cl", "lora", "site", "site:n_prompts=1")
SEEDS = (0, 1, 2)
WEIGHTS = 8.03e9
PEAK, UTILISATION = 989e12, 0.3  # operations per second of one H100, dense bf16, and the share of it assumed


def hours(tokens: float) -> float:
    """GPU hours for tokens of long prompts."""
    return 2 * WEIGHTS * tokens / (PEAK * UTILISATION) / 3600


def table(data_dir: str) -> str:
    """Suites x methods, in GPU hours, with the tokens of all of them."""
    model = load_model("smollm2-135m")
    rows = []
    for suite, n_shots in SUITES.items():
        tasks = load_suite(suite, data_dir=data_dir)
        known = known_methods(n_shots=n_shots, n_prompts=50, fitting=PAPER)
        by_method = []
        for name in METHODS:
            units = plan_units(model, tasks, [named_method(name, known)], SEEDS, None)
            by_method.append(sum(token_cost(model, unit) for unit in units))
        total = sum(by_method)
        cells = [f"{hours(tokens):.1f}" for tokens in (*by_method, total)]
        rows.append([suite, str(len(tasks)), *cells, f"{total / 1e6:.0f}"])
    return markdown([["suite", "tasks", *METHODS, "all, GPU hours", "million tokens"], *rows])


if __name__ == "__main__":
    made = f"<!-- table: hours -->\n\n{table(sys.argv[1])}\n\n<!-- end -->"
    PAGE.write_text(re.sub(r"<!-- table: hours -->.*?<!-- end -->", lambda _: made, PAGE.read_text(), flags=re.DOTALL))
    print(made)
