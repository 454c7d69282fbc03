"""Every notebook runs from its first cell to its last, on the real model with small settings."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
LONGEST_CELL = 8  # lines
LARGEST = 1_000_000  # bytes


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_an_error(path, tmp_path, monkeypatch):
    monkeypatch.setenv("SITE_INTERP_QUICK", "1")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_public_names_in_short_cells_and_defines_nothing(path):
    import site_interp

    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    for source in cells:
        assert len(source.splitlines()) <= LONGEST_CELL, source
        for node in ast.walk(ast.parse(source)):
            assert not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda), source
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("site_interp"), source
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "si":
                assert node.attr in site_interp.__all__, node.attr


def test_there_is_a_quickstart():
    assert NOTEBOOKS[0].stem == "1_quickstart"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_its_outputs_and_every_figure_as_a_picture(path):
    """Run as a whole, in order; `make notebook-outputs` does it."""
    assert path.stat().st_size < LARGEST
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        shown = [output.get("data", {}) for output in cell.outputs]
        assert not any(output.output_type == "error" for output in cell.outputs)
        assert not any("plotly" in kind or "javascript" in kind for one in shown for kind in one)
        draws = cell.source.splitlines()[-1].startswith("si.plots.")
        assert [len(one["image/png"]) > 10_000 for one in shown if "image/png" in one] == [True] * draws
