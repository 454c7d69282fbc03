"""What an import of the package costs."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformer_lens", "transformers", "plotly", "scipy", "datasets")


@pytest.mark.parametrize("module", ["site_interp", "site_interp.tasks", "site_interp.prompts"])
def test_importing_loads_neither_torch_nor_transformer_lens(module: str) -> None:
    script = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_asking_for_a_name_that_needs_torch_is_what_loads_it() -> None:
    script = "import sys, site_interp.selection; print('torch' in sys.modules, 'transformer_lens' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
