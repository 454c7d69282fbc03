"""The application: verbs, exit codes, and how errors reach the user."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from site_interp.cli.doctor_verb import doctor_verb
from site_interp.cli.eval_verb import eval_verb
from site_interp.cli.fit_verb import fit_verb
from site_interp.cli.generate_verb import generate_verb
from site_interp.cli.models_verb import models_verb
from site_interp.cli.overlap_verb import overlap_verb
from site_interp.cli.patch_verb import patch_verb
from site_interp.cli.report_verb import report_verb
from site_interp.cli.run_verb import run_verb
from site_interp.cli.tasks_verb import tasks_app
from site_interp.cli.transfer_verb import transfer_verb
from site_interp.errors import UserError

INTERRUPTED = 130  # exit code; typer turns an interrupt into it where nothing else does

app = typer.Typer(
    name="site-interp",
    help="Find the attention heads a task lives in, and switch the task on without a prompt.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run_verb)
app.command("fit")(fit_verb)
app.command("eval")(eval_verb)
app.command("generate")(generate_verb)
app.command("patch")(patch_verb)
app.command("transfer")(transfer_verb)
app.command("overlap")(overlap_verb)
app.command("report")(report_verb)
app.command("models")(models_verb)
app.command("doctor")(doctor_verb)
app.add_typer(tasks_app, name="tasks")


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"site-interp {version('site-interp')}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Find the attention heads a task lives in, and switch the task on without a prompt."""


def _check_streams() -> None:
    """A closed stdin is an empty one, a closed stdout is an error; what an encoding lacks is written as an escape."""
    if sys.stdout is None:
        if sys.stderr is not None:
            print(
                "site-interp: Cannot write the output: stdout is closed. Open it, or send it to a file.",
                file=sys.stderr,
            )
        raise SystemExit(2)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lives
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    0 all done, 1 some unit failed, 2 usage or bad input (one plain sentence on stderr), 130 interrupted.

    Args:
        arguments: Words after the program's name; by default those of the process.
    """
    _check_streams()
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="site-interp", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        print(f"site-interp: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as leaving:
        raise SystemExit(leaving.exit_code) from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR) and error.filename:
            name = str(error.filename)[:80]
            print(f"site-interp: Cannot use {name!r}: {error.strerror}. Give another path.", file=sys.stderr)
            raise SystemExit(2) from None
        if error.errno not in (errno.ENOSPC, errno.EPIPE):
            raise
        print(f"site-interp: Cannot write the output: {error.strerror}. Free the place.", file=sys.stderr)
        with suppress(OSError):  # what is still buffered would fail once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(2) from None
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # click's usage errors
            message = error.format_message()
            print(message if message.startswith("Usage:") else f"site-interp: {message}", file=sys.stderr)
            raise SystemExit(2) from None
        raise
    if code == INTERRUPTED:
        print(
            "\nsite-interp: interrupted; what is finished in an output folder is kept, and the same "
            "command continues there.",
            file=sys.stderr,
        )
    raise SystemExit(code if isinstance(code, int) else 0)
