"""The page of a run in a real Chromium without a network: figures, filters, hostile texts, and how quick it is."""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report_fixtures import EVIL, evil_run, large_run, small_run

from site_interp.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPENS_WITHIN = 5.0  # seconds, until the page is loaded; figures follow one after the other
FILTERS_WITHIN = 0.5  # seconds for 900 answers of each of ten tasks
FILTERING = """() => {
    const start = performance.now();
    document.getElementById("filter").dispatchEvent(new Event("input"));
    return (performance.now() - start) / 1000;
}"""


@dataclass
class Opened:
    """A page, with everything that went wrong in it and everything it asked for."""

    page: Page
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def drawn(self) -> None:
        """Wait until every figure stands."""
        expect(self.page.locator(".drawing:not(:has(.main-svg .infolayer))")).to_have_count(0, timeout=20_000)

    def choose(self, condition: int, method: str, state: str, seed: str = "every") -> None:
        line = self.page.locator(".condition").nth(condition)
        for name, value in (("method", method), ("state", state), ("seed", seed)):
            line.locator(f"select.{name}").select_option(value)

    def found(self, task: int = 0) -> list[str]:
        """Numbers of the examples listed for a task."""
        return self.page.locator(".task").nth(task).locator("td.number").all_inner_texts()

    def total(self) -> str:
        return self.page.locator("#total").inner_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None and "CI" not in os.environ:
        pytest.skip("no Chromium or Chrome is installed")
    assert found is not None, "no Chromium or Chrome is installed"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine: its address, and what it was asked for."""
    asked: list[str] = []

    class Listing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    made = HTTPServer(("127.0.0.1", 0), Listing)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}/", asked
    made.shutdown()
    made.server_close()


@contextmanager
def opened(browser: Browser, path: Path) -> Iterator[Opened]:
    """A page opened from disk, offline; at the end nothing may have gone wrong in it, and nothing been asked for."""
    context = browser.new_context(offline=True, viewport={"width": 1000, "height": 800})
    context.set_default_timeout(20_000)
    made = Opened(context.new_page())
    made.page.on("console", lambda line: made.errors.append(line.text) if line.type in ("error", "warning") else None)
    made.page.on("pageerror", lambda error: made.errors.append(str(error)))
    made.page.on("dialog", lambda dialog: (made.errors.append(dialog.message), dialog.dismiss()))
    made.page.on("request", lambda request: made.requests.append(request.url))
    start = time.monotonic()
    made.page.goto(path.as_uri())
    made.seconds = time.monotonic() - start
    yield made
    made.page.wait_for_timeout(50)
    assert made.errors == []
    assert [url for url in made.requests if not url.startswith("data:")] == [path.as_uri()]
    context.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(small_run(tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without figures, which opens at once."""
    return write_report(small_run(tmp_path_factory.mktemp("listed"), figures=False))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(large_run(tmp_path_factory.mktemp("large")))


def test_every_figure_is_drawn_and_answers_the_pointer(browser: Browser, small: Path) -> None:
    with opened(browser, small) as made:
        made.drawn()
        drawings = made.page.locator(".drawing")
        assert drawings.count() == 2
        for number in range(2):
            assert drawings.nth(number).locator("svg.main-svg").count() >= 1
        assert drawings.nth(0).locator(".barlayer .point path").count() == 1
        cells = drawings.nth(1).locator(".nsewdrag")
        cells.scroll_into_view_if_needed()
        cells.hover()
        drawings.nth(1).locator(".hoverlayer .hovertext").wait_for()
        assert "alpha 0." in (drawings.nth(1).locator(".hoverlayer").text_content() or "")


def test_one_metric_is_shown_at_a_time(browser: Browser, listed: Path) -> None:
    with opened(browser, listed) as made:
        captions = made.page.locator(".by-metric caption").all()
        assert [c.inner_text().split(",")[0] for c in captions if c.is_visible()] == ["prefix match", "prefix match"]
        made.page.get_by_role("radio", name="log-probability of the answer").check()
        shown = [caption.inner_text().split(",")[0] for caption in captions if caption.is_visible()]
        assert shown == ["log-probability of the answer"]


# The tables of right answers in report_fixtures, read by hand: examples are numbered from 1.
CASES: dict[str, tuple[list[tuple[str, str, str]], list[str]]] = {
    "nothing asked": ([], ["1", "2", "3", "4"]),
    "a method, every seed": ([("site", "right", "every")], ["2", "3"]),
    "a method, some seed": ([("site", "right", "some")], ["1", "2", "3"]),
    "a method, one seed": ([("site", "wrong", "1")], ["1", "4"]),
    "one right, the other wrong": ([("site", "right", "every"), ("icl", "wrong", "some")], ["2", "3"]),
    "one right, the other wrong, in one seed": ([("site", "right", "1"), ("icl", "wrong", "1")], ["2"]),
    "one right, the other never": ([("site", "right", "every"), ("icl", "wrong", "every")], []),
    "a method without seeds stands for each": ([("zero_shot", "right", "1")], ["1"]),
    "all methods wrong": ([("*every", "wrong", "every")], ["4"]),
    "some method wrong in every seed": ([("*any", "wrong", "every")], ["2", "3", "4"]),
    "all methods right in some seed": ([("*every", "right", "some")], ["1"]),
    "a floor": ([("echo", "right", "some")], []),
}


@pytest.mark.parametrize("name", CASES)
def test_conditions_list_the_examples_found_by_hand(browser: Browser, listed: Path, name: str) -> None:
    conditions, expected = CASES[name]
    with opened(browser, listed) as made:
        for place, condition in enumerate(conditions):
            made.choose(place, *condition)
        assert made.found() == expected
        assert made.total() == f"{len(expected)} of 4 examples"
        assert made.page.locator(".task .count").all_inner_texts() == [f"{len(expected)} of 4", "0 of 0"]


def test_the_metric_text_and_clearing_change_the_list(browser: Browser, listed: Path) -> None:
    with opened(browser, listed) as made:
        made.choose(0, "site", "right", "0")
        assert made.found() == ["1", "2", "3"]
        made.page.locator("#verdict").select_option("strict_match")
        assert made.found() == ["1"]
        made.page.get_by_role("button", name="Clear").click()
        expect(made.page.locator(".example")).to_have_count(4)
        search = made.page.get_by_label("Text")
        for text, expected in (("LITTLE", ["3"]), ("no up", ["4"]), ("early", ["2"]), ("nowhere", [])):
            search.fill(text)
            assert made.found() == expected


def test_an_example_shows_each_output_with_its_marks_and_seeds(browser: Browser, listed: Path) -> None:
    with opened(browser, listed) as made:
        hot = made.page.locator(".example").first
        assert hot.locator(".answers").inner_text() == "cold"
        assert hot.locator("dt").all_inner_texts() == ["zero_shot", "icl", "site"]
        lines = hot.locator("dd").nth(2).locator("li")
        assert lines.locator(".text").all_inner_texts() == ["cold", "no hot"]
        assert lines.locator(".about").all_inner_texts() == ["seed 0; −0.50 nats", "seed 1; −0.50 nats"]
        names = [mark.get_attribute("aria-label") for mark in lines.nth(1).locator(".mark").all()]
        assert names == ["prefix match: wrong", "strict match: wrong"]
        assert hot.locator("dd").nth(1).locator(".about").inner_text() == "seeds 0, 1; −0.50, −0.50 nats"
        made.page.get_by_role("checkbox", name="echo").check()
        assert made.page.locator(".example").first.locator("dt").all_inner_texts()[0] == "echo"


def test_the_page_can_be_used_by_keyboard(browser: Browser, listed: Path) -> None:
    with opened(browser, listed) as made:
        made.page.locator(".task summary").first.focus()
        made.page.keyboard.press("Enter")
        assert made.page.locator(".task").first.get_attribute("open") is None
        made.page.keyboard.press("Enter")
        assert made.found() == ["1", "2", "3", "4"]
        made.page.locator("input[name=metric]").first.focus()
        made.page.keyboard.press("ArrowDown")
        assert made.page.locator("input[name=metric]").nth(1).is_checked()
        assert made.page.locator("#scores .by-metric:visible").get_attribute("data-metric") == "strict_match"
        made.page.locator("#text").focus()
        made.page.keyboard.type("early")
        made.page.keyboard.press("Enter")
        assert made.found() == ["2"]


def test_texts_that_try_to_run_a_script_do_nothing_and_are_shown(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, write_report(evil_run(tmp_path))) as made:
        made.drawn()
        made.page.get_by_label("Text").fill("ONERROR")
        assert made.found() == ["1", "2"]
        assert made.page.evaluate("window.hacked") is None
        assert made.page.locator("img, iframe, object, svg script").count() == 0
        first = made.page.locator(".example").first
        for text in (
            made.page.locator(".task summary").inner_text(),
            first.locator(".input .text").inner_text(),
            first.locator(".answers .text").first.inner_text(),
            first.locator("dd .text").inner_text(),
            made.page.locator("#scores tbody th").first.inner_text(),
            made.page.locator("h1").inner_text(),
        ):
            assert EVIL in text
        assert made.page.locator("#configuration dd").last.inner_text() == json.dumps(EVIL, ensure_ascii=False)
        title = made.page.locator(".drawing .gtitle").first
        assert "<img src=x onerror=window.hacked=1>" in (title.text_content() or "")


def test_the_policy_of_the_page_stops_scripts_and_requests(
    browser: Browser, listed: Path, server: tuple[str, list[str]]
) -> None:
    address, asked = server
    page = browser.new_page()
    page.goto(listed.as_uri())
    page.evaluate(
        """(address) => {
            document.body.append(Object.assign(document.createElement("script"), { textContent: "window.hacked = 1" }));
            document.body.append(Object.assign(document.createElement("img"), { src: address }));
            document.body.insertAdjacentHTML("beforeend", "<p id=press onclick='window.hacked = 2'>press</p>");
            document.getElementById("press").click();
        }""",
        address,
    )
    fetching = "(address) => fetch(address, { mode: 'no-cors' }).then(() => 'came', () => 'refused')"
    assert page.evaluate(fetching, address) == "refused"
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None
    assert asked == []
    page.goto(address)
    assert "/" in asked  # the server answers where no policy stands before it
    page.close()


def test_a_large_run_opens_quickly_lists_in_pages_and_filters_at_once(browser: Browser, large: Path) -> None:
    with opened(browser, large) as made:
        assert made.seconds < OPENS_WITHIN
        assert made.total() == "1000 of 1000 examples"
        assert made.page.locator(".example").count() == 25
        made.drawn()
        assert made.page.locator(".drawing").count() == 11
        made.page.get_by_role("button", name="Show 25 more").click()
        assert len(made.found()) == 50
        made.page.get_by_role("button", name="Show all 100").click()
        assert made.found() == [str(number) for number in range(1, 101)]
        made.choose(0, "*every", "right", "some")
        made.page.get_by_label("Text").fill("input 2")
        assert made.total() == "110 of 1000 examples"  # 2 and 20 to 29, in each of ten tasks
        assert made.page.evaluate(FILTERING) < FILTERS_WITHIN
        made.page.locator(".task summary").nth(9).click()
        assert made.found(9) == ["3", *(str(number) for number in range(21, 31))]
        assert made.page.locator(".task").nth(9).locator("dd").first.inner_text().count("output 2") == 1


def test_nothing_is_cut_off_at_a_thousand_pixels(browser: Browser, small: Path) -> None:
    with opened(browser, small) as made:
        made.drawn()
        assert made.page.evaluate("document.documentElement.scrollWidth") <= 1000
