"""`site-interp doctor`: a self-test to run before any number is trusted."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from site_interp.cli import options
from site_interp.cli.console import progress_bar, show, table
from site_interp.errors import UserError

if TYPE_CHECKING:
    from site_interp.doctor import Check
    from site_interp.experiments.fit_units import Progress

LOAD = ("load", "the model can be loaded")


def doctor_verb(
    model: options.ModelName = "smollm2-135m",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    full: Annotated[bool, typer.Option("--full", help="Also compare with 16 bits, and a GPU with the CPU.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Test that a model does what every number here rests on, with these versions on this machine.

    One check loads the weights again through plain transformers, so memory for twice the model is needed. Deviations
    are shares of the largest value compared, or counts. Exit code 1 if a check fails.
    """
    from site_interp.doctor import describe_machine, n_checks

    machine = describe_machine()
    if not as_json:
        show(table(["versions and machine", ""], [[name, _machine_text(name, machine[name])] for name in machine]))
    with progress_bar(float(n_checks(full=full))) as progress:
        about, checks = _examine(model, device, dtype, full=full, progress=progress)
    failed = sum(check.status == "fail" for check in checks)
    if as_json:
        from site_interp.files import json_line

        rows = [asdict(check) for check in checks]
        print(json_line({"machine": machine, "model": about, "checks": rows, "failed": failed}))
    else:
        _show(about, checks, failed)
    raise typer.Exit(1 if failed else 0)


def _examine(
    name: str, device: str, dtype: str | None, *, full: bool, progress: "Progress"
) -> "tuple[dict[str, Any], list[Check]]":
    """What was tested, and the checks; a model that cannot be loaded is one failed check."""
    from site_interp.doctor import iterate_checks
    from site_interp.doctor.check import failed

    progress.say(f"loading {name}")
    try:
        loaded = options.read_model(name, device, dtype, check=False)
    except UserError:  # a name, folder, device or precision that the user can put right
        raise
    except Exception as error:  # noqa: BLE001 - as in `ask`: what the versions here run into is the result
        return {"name": name, "device": device, "dtype": dtype}, [failed(*LOAD, error)]
    about = {"name": loaded.name, "device": str(loaded.device), "dtype": loaded.dtype_name,
             "n_layers": loaded.n_layers, "n_heads": loaded.n_heads}  # fmt: skip
    checks = []
    for check in iterate_checks(loaded, full=full):
        checks.append(check)
        progress.advance(1.0)
        progress.say(f"{check.name}: {check.status}")
    return about, checks


def _show(about: dict[str, Any], checks: "list[Check]", failed: int) -> None:
    rows = [
        [check.name, check.status.upper() if check.status == "fail" else check.status]
        + ["" if number is None else f"{number:.2g}" for number in (check.deviation, check.tolerance)]
        for check in checks
    ]
    title = f"{about['name']}, {about['dtype']}, {about['device']}"
    show(table(["check", "result", "deviation", "allowed"], rows, title))
    for check in checks:
        if check.status != "pass":
            show(f"{check.name} ({check.meaning}) {check.status}: {check.detail}")
    show(f"{failed} of {len(checks)} checks failed." if failed else "No check failed.")
    show("What each check compared is in --json.")


def _machine_text(name: str, value: str | int | float | bool | None) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value} GiB" if name in ("memory", "memory available", "cache size") else str(value)
