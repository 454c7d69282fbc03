"""Execute the notebooks with full settings and keep their outputs, figures as static PNG.

    .venv/bin/python notebooks/execute.py            # all; `make notebook-outputs`
    .venv/bin/python notebooks/execute.py 2 5        # those whose names start so

Each runs in an empty folder of its own, and is written back only when every cell has run and the file is small enough.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
LARGEST = 1_000_000  # bytes of a notebook with its outputs


def main(wanted: list[str]) -> None:
    os.environ.pop("SITE_INTERP_QUICK", None)
    os.environ["PLOTLY_RENDERER"] = "png"
    for path in sorted(FOLDER.glob("*.ipynb")):
        if wanted and not path.name.startswith(tuple(wanted)):
            continue
        start = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}).execute()
        for cell in notebook.cells:
            tidy(cell)
        notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec", "language_info")}
        notebook.metadata["language_info"] = {"name": "python"}
        text = nbformat.writes(notebook)
        if len(text.encode()) > LARGEST:
            sys.exit(f"{path.name} has {len(text.encode())} bytes with its outputs; at most {LARGEST} are kept.")
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {time.monotonic() - start:.0f} s, {len(text) // 1000} kB", flush=True)


def tidy(cell: NotebookNode) -> None:
    """Leave out progress bars, the times of cells and everything of a figure but its picture."""
    cell.metadata.pop("execution", None)
    if cell.cell_type != "code":
        return
    beside = [one for one in cell.outputs if one.output_type == "stream" and one.name == "stderr"]
    cell.outputs = [one for one in cell.outputs if one not in beside]
    for one in beside:
        if "\r" not in one.text:  # no progress bar
            print(one.text, file=sys.stderr)
    for output in cell.outputs:
        if "image/png" in output.get("data", {}):
            output.data = {"image/png": output.data["image/png"]}
            output.metadata = {}


if __name__ == "__main__":
    main(sys.argv[1:])
