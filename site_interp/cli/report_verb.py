"""`site-interp report`: one page of a run."""

from pathlib import Path
from typing import Annotated

import typer


def report_verb(
    out: Annotated[Path, typer.Argument(help="Output folder of a run.")],
    to: Annotated[Path | None, typer.Option("--to", help="HTML file to write; by default OUT/report.html.")] = None,
) -> None:
    """Make one page of a run to read offline: scores, differences, figures, examples and configuration."""
    from site_interp.report import write_report

    print(write_report(out, to))
