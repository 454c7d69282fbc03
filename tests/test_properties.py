"""Whatever the text, the file or the damage: templates keep every part, and readers give values or a plain error."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_store import record
from upper_fixtures import fitted_adapter, word_task

from site_interp.adapter import CONFIG_NAME, Adapter
from site_interp.errors import UserError
from site_interp.model import Model
from site_interp.prompts import CHAT, QA, Template, load_template
from site_interp.records import Record
from site_interp.store import open_results, read_results
from site_interp.tasks import Example

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def value_or_error(make: Callable[[], Any]) -> Any:
    """What a call gives, or the plain error it ends in; every other exception passes."""
    try:
        return make()
    except UserError as error:
        return error


lines = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=30)
answers = lines.filter(lambda text: not text.isdecimal())
cues = lines.map(lambda text: text.rstrip(" ") or ":")
templates = st.builds(Template, lines, lines, cues, lines, st.just("\n"), st.just("\n"))


@quick
@given(st.lists(st.tuples(lines, answers), max_size=4), lines)
@example([("A:", "Q: "), ("[/]", "\t")], "\x0b")
def test_every_demonstration_and_the_query_can_be_read_back_from_a_prompt(shown: list[Any], query: str) -> None:
    """Inputs and answers are lines, so that the line ends of the template are the only ones."""
    prompt = QA.few_shot([Example(text, (answer,)) for text, answer in shown], query)
    *blocks, last = prompt.split("\n\n")
    read = [block.split("\n") for block in blocks]
    assert [(q.removeprefix("Q: "), a.removeprefix("A: ")) for q, a in read] == shown
    assert last.split("\n") == [f"Q: {query}", "A:"]


@quick
@given(templates, st.lists(st.tuples(lines, lines), min_size=1, max_size=4), lines)
def test_any_template_writes_its_parts_in_order_and_ends_in_the_query(
    template: Template, shown: list[Any], query: str
) -> None:
    prompt = template.few_shot([Example(text, (answer,)) for text, answer in shown], query)
    *demonstrations, last = prompt.split("\n")
    assert len(demonstrations) == len(shown)
    for written, (text, answer) in zip(demonstrations, shown, strict=True):
        assert written.startswith(template.input_prefix + text + template.answer_cue)
        assert written.endswith(answer)
    assert last[len(template.input_prefix) : len(last) - len(template.answer_cue)] == query
    assert last == template.zero_shot(query)


@quick
@given(templates | st.sampled_from([QA, CHAT]))
def test_a_template_comes_back_from_its_json(tmp_path: Path, template: Template) -> None:
    path = tmp_path / "template.json"
    path.write_text(json.dumps(template.to_dict()), encoding="utf-8")
    assert load_template(str(path)) == template


@quick
@given(
    anything.map(json.dumps).map(str.encode)
    | st.dictionaries(st.sampled_from([*QA.to_dict(), "more"]), anything | st.text()).map(json.dumps).map(str.encode)
    | st.binary(max_size=60)
)
@example(b"[" * 100_000)
@example(b'{"name": 1}')
@example(b"1" * 5000)
def test_any_file_for_a_template_is_one_or_a_plain_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "template.json"
    path.write_bytes(content)
    found = value_or_error(lambda: load_template(str(path)))
    assert isinstance(found, Template) or str(found).startswith("Cannot ")


@quick
@given(st.text())
@example("a" * 300)
@example("\0")
@example(".")
def test_any_name_for_a_template_is_one_or_a_plain_error(name: str) -> None:
    found = value_or_error(lambda: load_template(name))
    assert isinstance(found, Template) or str(found).startswith("Cannot ")


numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records of one to four units, some of them failed."""
    made = []
    for unit in range(draw(st.integers(1, 4))):
        text, scores = draw(st.text()), tuple(draw(st.lists(numbers, min_size=1, max_size=5)))
        if draw(st.booleans()):
            made.append(record(str(unit), None, value=None, scores=None, status="failed", reason=text or "why"))
        else:
            made.append(record(str(unit), task=text, value=scores[0], scores=scores, n=len(scores)))
    return made


@quick
@given(records(), st.data())
def test_results_cut_at_any_byte_hold_exactly_the_whole_lines_and_go_on(
    tmp_path: Path, written: list[Record], data: st.DataObject
) -> None:
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    with open_results(tmp_path / "out") as results:
        for one in written:
            results.append([one])
    path = tmp_path / "out" / "results.jsonl"
    content = path.read_bytes()
    kept = content[: data.draw(st.integers(0, len(content)))]
    path.write_bytes(kept)
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    n_whole = sum(end <= len(kept) for end in ends)  # a line that lacks its end alone is whole
    assert read_results(tmp_path / "out") == written[:n_whole]
    with open_results(tmp_path / "out") as results:
        results.append([record("more")])
    assert read_results(tmp_path / "out") == [*written[:n_whole], record("more")]


RECORD = json.loads(json.dumps(vars(record("u"))))


@quick
@given(
    st.binary(max_size=80)
    | anything.map(json.dumps).map(str.encode)
    | st.dictionaries(st.sampled_from(sorted(RECORD)), anything, min_size=1, max_size=3).map(
        lambda changes: json.dumps({**RECORD, **changes}).encode()
    )
)
@example(b"[" * 100_000)
@example(json.dumps({**RECORD, "scores": [10**400], "n": 1}).encode())
@example(json.dumps({**RECORD, "scores": "01"}).encode())
@example(json.dumps({**RECORD, "metric": ["x"], "status": "failed"}).encode())
@example(json.dumps({**RECORD, "unit_hash": []}).encode())
@example(json.dumps({**RECORD, "value": "0.5"}).encode())
@example(json.dumps({**RECORD, "task": 1}).encode())
@example(json.dumps({**RECORD, "seed": "0"}).encode())
def test_any_bytes_for_results_are_records_or_a_plain_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "results.jsonl").write_bytes(content + b"\n" + content)
    found = value_or_error(lambda: read_results(tmp_path))
    if isinstance(found, UserError):
        assert str(found).startswith("Cannot read ")
    else:
        for one in found:
            assert isinstance(one, Record)
            assert {type(value) for value in (one.model, one.task, one.unit_hash, one.reason, one.version)} == {str}
            assert isinstance(one.seed, int)
            assert type(json.loads(content)["scores"]) in (list, type(None))


@pytest.fixture(scope="module")
def saved(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    fitted_adapter(llama, word_task()).save_pretrained(folder)
    return folder


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every field of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, part in inner for found in [(*path, key), *places_in(part, (*path, key))]]


@quick
@given(data=st.data())
def test_any_change_of_a_configuration_gives_an_adapter_or_a_plain_error(
    saved: Path, tmp_path: Path, llama: Model, data: st.DataObject
) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    config = json.loads((saved / CONFIG_NAME).read_text())
    *way, last = data.draw(st.sampled_from(places_in(config)))
    holder = config
    for key in way:
        holder = holder[key]
    if data.draw(st.booleans()):
        holder[last] = data.draw(anything)
    else:
        del holder[last]
    (tmp_path / CONFIG_NAME).write_text(json.dumps(config))
    found = value_or_error(lambda: Adapter.from_pretrained(tmp_path, llama))
    if isinstance(found, UserError):
        assert str(found).startswith(("Cannot load an adapter from", "This adapter was made with"))
    else:
        found.save_pretrained(tmp_path / "again")
        assert Adapter.from_pretrained(tmp_path / "again", llama).embedding.task == found.embedding.task


@quick
@given(st.binary(max_size=60) | anything.map(json.dumps).map(str.encode))
@example(b"[" * 100_000)
def test_any_bytes_for_a_configuration_are_a_plain_error(saved: Path, tmp_path: Path, content: bytes) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    (tmp_path / CONFIG_NAME).write_bytes(content)
    with pytest.raises(UserError, match="Cannot load an adapter from"):
        Adapter.from_pretrained(tmp_path)
