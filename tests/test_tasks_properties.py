"""Properties of the readers and splits: what is written comes back, what is broken is refused in a sentence."""

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from site_interp.errors import UserError
from site_interp.tasks import Row, load_task
from site_interp.tasks.files import SUFFIXES, read_rows
from site_interp.tasks.splits import clear_leaks, cut_splits

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).filter(str.strip)
ANY_TEXT = st.one_of(TEXT, st.text("\"',;\t\r\n \\{}[]\u2028\ufeffa", min_size=1, max_size=8).filter(str.strip))
PAIRS = st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=1, max_size=6)
WORDS = st.text("abc", min_size=1, max_size=3)
ROWS = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=2).map(tuple)), min_size=1, max_size=40)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=5,
)


def written(suffix: str, pairs: list[tuple[str, str]], encoding: str) -> bytes:
    """Pairs in a file, as Python's own writers write them."""
    objects = [{"input": text, "output": answer} for text, answer in pairs]
    if suffix == ".json":
        return json.dumps(objects, ensure_ascii=False).encode(encoding)
    if suffix == ".jsonl":
        return "\n".join(json.dumps(item, ensure_ascii=False) for item in objects).encode(encoding)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t" if suffix == ".tsv" else ",")
    writer.writerows([("input", "output"), *pairs])
    return buffer.getvalue().encode(encoding)


def read_or_refuse(path: Path) -> list[Row]:
    """The rows, or none where a sentence that names the file refuses it."""
    try:
        return read_rows(path)
    except UserError as error:
        refusal = str(error)
    assert str(path) in refusal
    return []


@pytest.mark.parametrize("suffix", SUFFIXES)
@QUICK
@given(pairs=PAIRS, encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_what_is_written_comes_back_with_only_the_answers_stripped(
    tmp_path: Path, suffix: str, pairs: list[tuple[str, str]], encoding: str
) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(written(suffix, pairs, encoding))
    assert read_rows(path) == [(text, (answer.strip(),)) for text, answer in pairs]


@pytest.mark.parametrize("suffix", SUFFIXES)
@QUICK
@given(content=st.one_of(st.binary(max_size=60), st.text('"{}[]:,;\t\r\n\0inputo\\u', max_size=60).map(str.encode)))
def test_arbitrary_bytes_are_read_or_refused_in_a_sentence(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content)
    read_or_refuse(path)
    with contextlib.suppress(UserError):
        load_task(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@QUICK
@given(pairs=PAIRS, place=st.integers(0, 400), inserted=st.one_of(st.none(), st.binary(min_size=1, max_size=2)))
def test_a_file_cut_off_or_changed_anywhere_gives_texts_or_a_sentence(
    tmp_path: Path, suffix: str, pairs: list[tuple[str, str]], place: int, inserted: bytes | None
) -> None:
    path = tmp_path / f"t{suffix}"
    content = written(suffix, pairs, "utf-8")
    path.write_bytes(content[:place] if inserted is None else content[:place] + inserted + content[place:])
    assert all(text.strip() and answers and all(answers) for text, answers in read_or_refuse(path))


@QUICK
@given(items=st.one_of(VALUES, st.lists(st.fixed_dictionaries({"input": VALUES, "output": VALUES}), max_size=3)))
def test_any_json_gives_texts_that_can_be_encoded_or_a_sentence(tmp_path: Path, items: object) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(items))
    assert all(text.encode() for row in read_or_refuse(path) for text in (row[0], *row[1]))


@QUICK
@given(rows=ROWS, split_seed=st.integers(0, 5))
def test_cut_splits_are_disjoint_by_input_complete_and_the_same_each_time(rows: list[Row], split_seed: int) -> None:
    distinct = {text for text, _ in rows}
    if len(distinct) < 3:
        with pytest.raises(UserError, match="distinct inputs"):
            cut_splits(rows, name="t", split_seed=split_seed)
        return
    splits = cut_splits(rows, name="t", split_seed=split_seed)
    inputs = [e.input for split in splits for e in split]
    assert len(inputs) == len(distinct)
    assert set(inputs) == distinct
    assert all(splits)
    for e in (e for split in splits for e in split):
        assert set(e.answers) == {answer for text, answers in rows if text == e.input for answer in answers}
    assert cut_splits(list(rows), name="t", split_seed=split_seed) == splits


@QUICK
@given(given_splits=st.tuples(ROWS, ROWS, ROWS))
def test_given_splits_lose_what_an_earlier_split_holds_and_nothing_else(
    given_splits: tuple[list[Row], list[Row], list[Row]],
) -> None:
    try:
        splits, n_leaked = clear_leaks(given_splits, name="t")
    except UserError:
        reject()  # nothing is left of a split, which has a test of its own
    pairs = [{(text, answer) for text, answers in rows for answer in answers} for rows in given_splits]
    kept = [{(e.input, answer) for e in split for answer in e.answers} for split in splits]
    assert kept[0] == pairs[0]
    assert not kept[1] & pairs[0]
    assert not kept[2] & (pairs[0] | pairs[1])
    gone = {text for text, _ in pairs[2] - kept[2]}
    assert all(any((text, answer) in pairs[0] | pairs[1] for t, answer in pairs[2] if t == text) for text in gone)
    assert n_leaked == sum(text in gone for text, _ in given_splits[2])
