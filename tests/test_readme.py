"""The README's quickstart runs as it stands there."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SMALLER = {
    "n_prompts=50": "n_prompts=4",
    "embedding, seed=0": "embedding, seed=0, settings=si.FitSettings(n_steps=20)",
    "n_test=100": "n_test=6",
}


def quickstart() -> str:
    """The first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found
    return found[1]


def test_the_quickstart_is_at_most_twenty_lines():
    assert len([line for line in quickstart().splitlines() if line.strip()]) <= 20


@pytest.mark.slow
def test_the_quickstart_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = quickstart()
    for written, smaller in SMALLER.items():
        assert code.count(written) == 1, f"{written} is no longer in the quickstart"
        code = code.replace(written, smaller)
    exec(compile(code, "README.md", "exec"), {})
    assert "zero_shot" in capsys.readouterr().out
    assert (tmp_path / "antonym-smollm2" / "adapter.safetensors").is_file()
