"""The page of a run, read as text: its numbers, what it leaves out, and that no text of a run becomes markup."""

import hashlib
import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import EVIL, evil_run, record, scored, small_run, write_figures, write_records

from site_interp.cli import main
from site_interp.comparison import nested_mean
from site_interp.errors import UserError
from site_interp.plots import head_map
from site_interp.report import report_page, write_report
from site_interp.report.figures import drawn_by
from site_interp.report.tables import seed_words
from site_interp.store import save_figures

UNBROKEN = "\u00a0"
WITHOUT_CONTENT = {"meta", "link", "input", "img"}


class Page(HTMLParser):
    """What a page holds: elements with attributes, the rows of its tables, its scripts, and its text outside these."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self.feed(page.decode())
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in WITHOUT_CONTENT:
            return
        self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "caption":
            self.tables[""] = self._rows
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")
        elif tag == "small" and self._rows and self._rows[-1]:
            self._rows[-1][-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        data = data.replace(UNBROKEN, " ") if self._open and self._open[-1] == "small" else data
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif "caption" in self._open:
            self.tables[data] = self.tables.pop("")
        elif "tr" in self._open:
            self._rows[-1][-1] += data
        else:
            self.text += data

    def table(self, start: str) -> list[list[str]]:
        (found,) = (rows for caption, rows in self.tables.items() if caption.startswith(start))
        return found

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    return small_run(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def page(small: Path) -> Page:
    return Page(report_page(small))


def test_the_table_holds_every_method_with_its_interval_and_what_it_rests_on(page: Page) -> None:
    heading, antonym, none = page.table("prefix match, %")
    assert heading == ["task", "echo (floor)", "zero_shot", "icl", "site"]
    interval = nested_mean({"": [[1, 1, 0, 0], [1, 0, 1, 0]]})
    ends = f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    assert antonym[3] == f"50.0 {ends} | n 4, seeds 0, 1, labels 7"
    assert antonym[:2] == ["bundled/antonym", "0.0 [0.0, 0.0] | n 4, seed 0, labels 7"]
    assert antonym[2].startswith("25.0 [")
    assert antonym[4].startswith("62.5 [")
    assert none == ["file/none", "–", "–", " | inapplicable: seed 0", " | failed: seed 1"]


def test_each_metric_has_a_table_and_log_probabilities_stand_in_nats(page: Page) -> None:
    assert page.table("strict match")[1][4].startswith("37.5 [")
    assert page.table("log-probability")[1][3].startswith("−1.25 [−")
    assert page.table("log-probability")[1][1] == "–"
    shown = [attrs["value"] for tag, attrs in page.elements if tag == "input" and attrs.get("name") == "metric"]
    assert shown == ["prefix_match", "strict_match", "answer_log_prob"]


def test_units_without_scores_are_listed_with_their_reasons(page: Page) -> None:
    assert page.table("Units without scores")[1:] == [
        ["file/none", "icl", "0", "inapplicable", "11 examples are needed, found 8"],
        ["file/none", "site", "1", "failed", "out of <memory>"],
    ]


def test_only_a_method_with_every_task_has_a_mean(tmp_path: Path) -> None:
    one, two = {"prefix_match": [1, 1, 0, 0]}, {"prefix_match": [1, 1, 1, 1]}
    records = [*scored("a", "icl", 0, one), *scored("b", "icl", 0, two), *scored("a", "site", 0, two)]
    write_records(tmp_path, records)
    last = Page(report_page(tmp_path)).table("prefix match")[-1]
    assert last[0] == "mean"
    assert last[1].startswith("75.0 [")
    assert last[1].endswith("| 2 tasks")
    assert last[2] == "–"


def test_differences_are_those_of_the_run_with_a_mark_where_zero_is_outside(page: Page) -> None:
    heading, row = page.table("prefix match, points")
    assert heading == ["task", "site − icl", "site − zero_shot"]
    assert row == ["bundled/antonym", "+12.5 [−12.5, +50.0] | n 4, seeds 2", "−37.5 [−50.0, −12.5] | n 4, seeds 2"]
    marks = [attrs["class"] for tag, attrs in page.elements if tag == "td" and "class" in attrs]
    assert marks == ["open", "clear"]


def test_damaged_differences_are_counted_and_left_out(small: Path, tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    path = tmp_path / "comparisons.jsonl"
    path.write_text(path.read_text() + '{"task": 3}\n{"tas\n')
    made = Page(report_page(tmp_path))
    assert "Damaged lines of comparisons.jsonl are left out: 2." in made.text
    assert any("paired difference" in caption for caption in made.tables)


def test_numbers_no_score_can_be_are_damage(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    path = tmp_path / "comparisons.jsonl"
    first = json.loads(path.read_text().splitlines()[0])
    spoiled = [json.dumps({**first, key: 10**400}) for key in ("value", "ci_low", "ci_high")]
    path.write_text("\n".join([path.read_text().rstrip("\n"), *spoiled]) + "\n")
    assert "Damaged lines of comparisons.jsonl are left out: 3." in Page(report_page(tmp_path)).text


def test_seeds_far_apart_are_named_one_by_one() -> None:
    assert seed_words([0, 1, 10**18]) == "seeds 0, 1, 1000000000000000000"
    assert seed_words([2, 0, 1]) == "seeds 0–2"


def test_a_figure_is_read_back_as_it_was_drawn(tmp_path: Path) -> None:
    figure = head_map([[0.0, 0.25], [0.5, 1.0]], title=f"a {EVIL} b")
    save_figures(tmp_path, {"map": (figure, {})}, png=False)
    data, layout = drawn_by((tmp_path / "figures" / "map.html").read_text())
    assert {"data": data, "layout": layout} == json.loads(figure.to_json())


def test_figures_are_in_the_data_in_the_order_of_their_places(page: Page) -> None:
    places = [attrs["data-number"] for _, attrs in page.elements if attrs.get("class") == "drawing"]
    assert places == ["0", "1"]
    bars, alpha = page.data["figures"]
    assert [bars["data"][0]["type"], alpha["data"][0]["type"]] == ["bar", "heatmap"]
    places = [page.text.index(words) for words in ("Scores and fitting", "accuracy", "Alpha of each head", "alpha_0")]
    assert places == sorted(places)
    assert sum("Plotly" in script and len(script) > 1_000_000 for script in page.scripts) == 1


def test_a_figure_without_a_readable_page_is_a_picture_or_a_reason(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG")
    (folder / "b.html").write_text("<p>nothing")
    (folder / "c.html").write_text('Plotly.newPlot("c", [1, ')
    made = Page(report_page(tmp_path))
    assert made.data["figures"] == [None, None, None]
    assert ("img", {"alt": "", "src": "data:image/png;base64,iVBORw=="}) in made.elements
    assert "Not drawn: b.html cannot be read: it draws nothing with plotly." in made.text
    assert "Not drawn: c.html cannot be read: " in made.text


def test_a_run_without_figures_has_a_small_page(tmp_path: Path) -> None:
    made = report_page(small_run(tmp_path, figures=False))
    assert len(made) < 100_000
    assert "The run's folder holds no figures." in Page(made).text


def test_examples_carry_every_output_and_score_once(page: Page) -> None:
    antonym, none = page.data["tasks"]
    assert (antonym["inputs"], antonym["answers"][2]) == (["hot", "early", "big", "up"], ["small", "little"])
    units = {(unit["method"], unit["seed"]): unit for unit in antonym["units"]}
    assert units["site", 1]["outputs"] == [" no hot\n", " late\n", " small\n", " no up\n"]
    assert units["site", 0]["scores"]["strict_match"] == [1, 0, 0, 0]
    assert units["site", 0]["scores"]["answer_log_prob"] == [-0.5, -1, -1.5, -2]
    assert (none["inputs"], none["units"]) == ([], [])


def test_predictions_of_another_run_are_left_out_and_named(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    folder = tmp_path / "predictions"
    other = folder / "bundled-antonym__icl__seed-1.jsonl"
    other.write_text(other.read_text().replace('"prefix_match": 0.0', '"prefix_match": 1.0', 1))
    changed = folder / "bundled-antonym__site__seed-0.jsonl"
    changed.write_text(changed.read_text().replace('"hot"', '"warm"'))
    for unit in ("icl__seed-0", "site__seed-1"):
        (folder / f"bundled-antonym__{unit}.jsonl").unlink()
    antonym = Page(report_page(tmp_path)).data["tasks"][0]
    assert {(unit["method"], unit["seed"]) for unit in antonym["units"]} == {("echo", 0), ("zero_shot", 0)}
    assert antonym["notes"] == [
        f"icl, seed 1: {other.name} is damaged or of another run.",
        f"site, seed 0: {changed.name} has other examples than the file before it.",
        "No predictions were kept of icl, seed 0; site, seed 1.",
    ]


def test_records_of_earlier_runs_in_the_folder_are_counted_and_left_out(tmp_path: Path) -> None:
    half, full = {"prefix_match": [1, 0]}, {"prefix_match": [1, 1, 1, 1]}
    earlier = [
        *scored("a", "icl", 0, half, unit_hash="fewer examples"),
        *scored("a", "icl", 1, half),
        *scored("a", "icl", 0, full, unit_hash="old split", split_hash="old"),
        *scored("a", "icl", 0, full, unit_hash="old model", model_fingerprint="old"),
        record("a", "icl", unit_hash="replaced", status="failed", reason="broke"),
    ]
    write_records(tmp_path, [*earlier, *scored("a", "icl", 0, full)])
    made = Page(report_page(tmp_path))
    assert made.table("prefix match")[1:] == [["a", "100.0 [100.0, 100.0] | n 4, seed 0, labels 7"]]
    assert "5 records of earlier runs" in made.text
    assert "broke" not in made.text
    assert not any(caption.startswith("Units without") for caption in made.tables)


def test_the_configuration_names_versions_splits_and_what_adapters_share(page: Page) -> None:
    for text in ("tiny-model", "f00d", "float32", "9.8.7", "template.answer_cue", '"\\nA:"', "versions.torch", "2.0"):
        assert text in page.text
    assert page.table("Tasks")[1] == ["bundled/antonym", "split of bundled/antonym", "4"]
    assert page.table("Methods")[4] == ["site", "none", "seeds 0, 1"]
    assert page.table("What differs between the adapters") == [
        ["adapter", "seed"], ["bundled-antonym__seed-0", "0"], ["bundled-antonym__seed-1", "1"]
    ]  # fmt: skip
    assert "trace" not in page.text


def test_no_text_of_a_run_becomes_markup_or_ends_the_data(tmp_path: Path) -> None:
    source = report_page(evil_run(tmp_path)).decode()
    made = Page(source.encode())
    assert [tag for tag, attrs in made.elements if tag == "script"] == ["script"] * 3
    assert not any(tag == "img" or "onerror" in attrs for tag, attrs in made.elements)
    block = source.split('id="data">', 1)[1].split("</script>", 1)[0]
    assert not re.search("[<>&\u2028\u2029]", block)
    (task,) = made.data["tasks"]
    assert (task["name"], task["inputs"][1], task["answers"][0][0]) == (f"file/{EVIL}", f"{EVIL} 1", EVIL)
    assert EVIL in made.text
    assert EVIL in made.table("Units without scores")[1]


def test_the_policy_lets_nothing_run_or_load_but_the_scripts_of_the_page(page: Page) -> None:
    (policy,) = (attrs["content"] for _, attrs in page.elements if "http-equiv" in attrs)
    assert policy is not None
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts.pop("script-src").split() == [
        f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in page.scripts[1:]
    ]
    assert parts == {
        "default-src": "'none'", "style-src": "'unsafe-inline'", "img-src": "data: blob:", "base-uri": "'none'",
        "form-action": "'none'",
    }  # fmt: skip
    assert not any(attrs.get("src", "data:").startswith("http") for _, attrs in page.elements)


def test_the_same_folder_gives_the_same_page_dated_by_its_results(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    os.utime(tmp_path / "results.jsonl", (0, 86400 * 366))
    first = report_page(tmp_path)
    assert first == report_page(tmp_path)
    assert "2 tasks, 4 methods, 2 seeds. Results of 1971-01-02 00:00 UTC." in first.decode()
    assert "Results of May." in report_page(tmp_path, created="May").decode()


def test_text_that_no_encoding_has_is_still_written(tmp_path: Path) -> None:
    write_records(tmp_path, [record("file/\ud800", "icl", status="failed", reason="broke \udc00")])
    assert b"broke &#56320;" in write_report(tmp_path).read_bytes()


def test_a_damaged_adapter_is_named_and_the_page_made(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    (tmp_path / "adapters" / "bundled-antonym__seed-0" / "adapter_config.json").write_text("{")
    assert "The configuration of the adapter bundled-antonym__seed-0 cannot be read" in report_page(tmp_path).decode()


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        main(list(map(str, words)))
    shown = capsys.readouterr()
    assert isinstance(leaving.value.code, int)
    return leaving.value.code, shown.out, shown.err


def test_the_verb_writes_into_the_folder_or_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = small_run(tmp_path / "run", figures=False)
    before = {path.name for path in out.iterdir()}
    assert command(capsys, "report", out) == (0, f"{out}/report.html\n", "")
    assert {path.name for path in out.iterdir()} == before | {"report.html"}
    assert command(capsys, "report", out, "--to", tmp_path / "new" / "x.html") == (0, f"{tmp_path}/new/x.html\n", "")
    assert (tmp_path / "new" / "x.html").read_bytes() == (out / "report.html").read_bytes()


def test_a_folder_without_results_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        code, out, err = command(capsys, "report", folder)
        assert (code, out) == (2, "")
        assert err.startswith(f"site-interp: Cannot read results in {folder}: it has no results.jsonl.")
    (tmp_path / "results.jsonl").touch()
    code, _, err = command(capsys, "report", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "its results.jsonl holds no record" in err
    assert not (tmp_path / "report.html").exists()


def test_a_report_never_replaces_results(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    before = (tmp_path / "results.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"its name does not end in \.html"):
        write_report(tmp_path, tmp_path / "results.jsonl")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UserError, match=r"Cannot write to .*folder\.html: Is a directory"):
        write_report(tmp_path, tmp_path / "folder.html")
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    small_run(tmp_path, figures=False)
    write_figures(tmp_path)
    code = (
        "import sys, pathlib; from site_interp.report import write_report; "
        "write_report(pathlib.Path(sys.argv[1])); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
