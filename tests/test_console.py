"""Tables on a terminal narrower than they are: nothing is cut off."""

import pytest

from site_interp.cli.console import show, table


@pytest.mark.parametrize("columns", [20, 80, 300])
def test_a_table_wider_than_the_terminal_keeps_every_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    show(table(["task", *"abcdef"], [["bundled/antonym", *["72.0 [60.0, 84.0]"] * 6]], "a title"), "a line")
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if "antonym" in line]
    assert row.split("bundled/antonym")[1].count("72.0 [60.0, 84.0]") == 6
    assert "…" not in "".join(lines)
    assert lines[-1] == "a line"
