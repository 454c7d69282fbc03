"""Single files: what each kind loads to, and the sentence each broken one is refused with."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from site_interp.errors import UserError
from site_interp.tasks import Task, load_task
from site_interp.tasks.files import read_rows

PAIRS = [(f"word{n}", f"answer{n}") for n in range(20)]
OBJECTS = [{"input": text, "output": answer} for text, answer in PAIRS]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def table(pairs: Sequence[tuple[str, str]], separator: str, line_end: str) -> str:
    return "".join(f"{text}{separator}{answer}{line_end}" for text, answer in [("input", "output"), *pairs])


def inputs(task: Task) -> set[str]:
    return {e.input for split in (task.train, task.valid, task.test) for e in split}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", json.dumps(OBJECTS)),
        ("t.json", b"\xef\xbb\xbf" + json.dumps(OBJECTS).encode()),
        ("t.json", json.dumps(OBJECTS).encode("utf-16")),
        ("t.jsonl", "\r\n\r\n".join(json.dumps(item) for item in OBJECTS) + "\r\n"),
        ("t.csv", table(PAIRS, ",", "\n")),
        ("t.csv", b"\xef\xbb\xbf" + (table(PAIRS, ",", "\r\n\r\n") + "\r\n").encode()),
        ("t.csv", table(PAIRS, ",", "\r\n").encode("utf-16")),
        ("t.tsv", table(PAIRS, "\t", "\n")),
        ("t.TSV", table(PAIRS, "\t", "\n")),
    ],
)
def test_the_same_rows_give_the_same_task_in_every_kind_of_file(
    tmp_path: Path, name: str, content: str | bytes
) -> None:
    task = load_task(write(tmp_path, name, content))
    assert task.name == "file/t"
    assert task.split_hash == load_task(write(tmp_path, "t.json", json.dumps(OBJECTS))).split_hash
    assert {(e.input, e.answers) for e in task.train + task.valid + task.test} == {(i, (o,)) for i, o in PAIRS}


def test_a_file_is_split_60_10_30_into_disjoint_inputs_by_split_seed(tmp_path: Path) -> None:
    path = write(tmp_path, "t.json", json.dumps(OBJECTS))
    task = load_task(path, split_seed=1)
    assert [len(split) for split in (task.train, task.valid, task.test)] == [12, 2, 6]
    assert len(inputs(task)) == 20
    assert load_task(str(path), split_seed=1) == task
    assert load_task(path, split_seed=2).test != task.test


def test_rows_with_one_input_are_merged_before_the_split(tmp_path: Path) -> None:
    doubled = [*OBJECTS, *({"input": text, "output": f"{answer} too"} for text, answer in PAIRS), *OBJECTS]
    task = load_task(write(tmp_path, "t.json", json.dumps(doubled)))
    assert [len(split) for split in (task.train, task.valid, task.test)] == [12, 2, 6]
    assert {(e.input, e.answers) for e in task.train + task.valid + task.test} == {
        (text, (answer, f"{answer} too")) for text, answer in PAIRS
    }


def test_three_inputs_are_enough_and_two_are_refused(tmp_path: Path) -> None:
    task = load_task(write(tmp_path, "t.json", json.dumps(OBJECTS[:3])))
    assert [len(split) for split in (task.train, task.valid, task.test)] == [1, 1, 1]
    with pytest.raises(UserError, match="2 distinct inputs"):
        load_task(write(tmp_path, "u.json", json.dumps([*OBJECTS[:2], *OBJECTS[:2]])))


def test_words_that_look_like_missing_values_or_numbers_stay_strings(tmp_path: Path) -> None:
    csv = "input,output\nNamibia,NA\nno value,null\nnone,None\n01,007\n 1.50 , 2.0 \n"
    assert read_rows(write(tmp_path, "t.csv", csv)) == [
        ("Namibia", ("NA",)),
        ("no value", ("null",)),
        ("none", ("None",)),
        ("01", ("007",)),
        (" 1.50 ", ("2.0",)),
    ]
    items = '[{"input": 3, "output": 1.50}, {"input": "x", "output": [1, "one"]}, {"input": ["glad"], "output": "NaN"}]'
    assert read_rows(write(tmp_path, "t.json", items)) == [("3", ("1.50",)), ("x", ("1", "one")), ("glad", ("NaN",))]


def test_quoted_separators_line_ends_and_special_tokens_stay_in_the_text(tmp_path: Path) -> None:
    csv = 'input,output\n"a, b",c\n"two\r\nlines","say ""hi"""\n<|endoftext|>,<s>\n'
    assert read_rows(write(tmp_path, "t.csv", csv)) == [
        ("a, b", ("c",)),
        ("two\r\nlines", ('say "hi"',)),
        ("<|endoftext|>", ("<s>",)),
    ]
    line = json.dumps({"input": "a\u2028b", "output": "\u00e9"}, ensure_ascii=False)
    assert read_rows(write(tmp_path, "t.jsonl", line)) == [("a\u2028b", ("\u00e9",))]


def test_a_csv_file_separated_by_semicolons_is_read_as_one(tmp_path: Path) -> None:
    content = 'input;output\n1,5;"2;5"\nhot, cold;x\n'
    assert read_rows(write(tmp_path, "t.csv", content)) == [("1,5", ("2;5",)), ("hot, cold", ("x",))]
    assert read_rows(write(tmp_path, "u.csv", "input,output;\na;b,c\n"), output_column="output;") == [("a;b", ("c",))]


def test_columns_of_other_names_are_read_on_request_and_named_in_the_refusal(tmp_path: Path) -> None:
    items = [{"question": text, "answer": answer} for text, answer in PAIRS]
    path = write(tmp_path, "t.json", json.dumps(items))
    with pytest.raises(UserError, match=r"t\.json'.*row 1 has no column 'input'.*'question', 'answer'.*input_column"):
        load_task(path)
    task = load_task(path, input_column="question", output_column="answer")
    assert inputs(task) == {text for text, _ in PAIRS}


def test_a_file_is_not_case_sensitive_unless_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "t.json", json.dumps(OBJECTS))
    assert not load_task(path).case_sensitive
    assert load_task(path, case_sensitive=True).case_sensitive


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.json", '[{"input":"hot","output":"cold"},{"input":"up","outp', "not valid JSON at line 1, column"),
        ("t.jsonl", '{"input":"a","output":"b"}\n{"input":', "not valid JSON at line 2, column"),
        ("t.json", " \n", "the file is empty"),
        ("t.csv", "", "the file is empty"),
        ("t.csv", "input,output\n", "holds no rows"),
        ("t.json", "[]", "holds no rows"),
        ("t.json", '{"input": "a"}', "must hold a list of objects"),
        ("t.json", '["a", "b"]', "row 1 is not an object"),
        ("t.json", '[{"input": "a", "output": "b"}, {"input": "a"}]', "row 2 has no column 'output'"),
        ("t.json", '[{"input": "a", "output": []}]', "row 1 needs an answer"),
        ("t.json", '[{"input": "a", "output": null}]', "row 1 needs an answer"),
        ("t.json", '[{"input": "a", "output": NaN}]', "row 1 needs an answer"),
        ("t.json", '[{"input": "a", "output": true}]', "row 1 needs an answer"),
        ("t.json", '[{"input": ["a", "b"], "output": "c"}]', "row 1 needs one text"),
        ("t.csv", "input,output\na,b\nc, \n", "line 3 needs an answer"),
        ("t.csv", "input,output\n,b\n", "line 2 needs one text"),
        ("t.csv", "input,output\na,b\nc\n", "line 3 has 1 fields and the header 2"),
        ("t.csv", "input,output\na,b,c\n", "line 2 has 3 fields and the header 2"),
        ("t.csv", "input,input\na,b\n", "column 'input' stands twice"),
        ("t.csv", 'input,output\na,"b\n', "line 2 cannot be read"),
        ("t.csv", "hot,cold\nup,down\n", "its columns are 'hot', 'cold'"),
        (
            "t.csv",
            "input,output\na,b\nc,caf\u00e9\n".encode("latin-1"),
            "line 3 is not valid UTF-8 text, its byte 0xe9",
        ),
        ("t.csv", "input,output\na,b\nc,caf\u00e9\n".encode("latin-1"), "(Latin-1 or Windows-1252, perhaps)"),
        ("t.csv", "input,output\na,b\n".encode("utf-16-le"), "line 1 holds a NUL character"),
        ("t.json", json.dumps(OBJECTS).encode("utf-32"), "UTF-16 or UTF-32 without a mark"),
        ("t.csv", "input,output\na,b\nc,d\0\n", "line 3 holds a NUL character"),
        ("t.json", '[{"input": "a", "output": "\\ud83d"}]', "row 1 holds half of a character"),
        ("t.json", '{"input": "a", "output": "b"}\n{"input": "c", "output": "d"}', "name it .jsonl"),
        ("t.json", '[{"input": "a", "output": {"text": "b"}}]', "row 1 needs an answer"),
        ("t.json", '[{"input": "a", "output": [["b"]]}]', "row 1 needs an answer"),
        ("t.json", '[{"input": false, "output": "b"}]', "row 1 needs one text"),
        ("t.json", "[" * 100_000, "nested too deeply"),
        ("t.json", b"\xff\xfea", "is not valid UTF-16 text"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_place(
    tmp_path: Path, name: str, content: str | bytes, sentence: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(UserError) as caught:
        load_task(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_files_other_kinds_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.csv': there is no such file"):
        load_task(tmp_path / "nowhere.csv")
    with pytest.raises(UserError, match=r"\.json, \.jsonl, \.csv, \.tsv"):
        load_task(write(tmp_path, "t.xlsx", "x"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UserError, match=r"folder\.json': it is a folder, not a file"):
        load_task(tmp_path / "folder.json")
    with pytest.raises(UserError, match="holds no data files"):
        load_task(tmp_path)


def test_a_missing_column_is_told_beside_the_first_of_many(tmp_path: Path) -> None:
    names = [f"c{index}" for index in range(200)]
    path = write(tmp_path, "t.csv", f"{','.join(names)}\n{','.join(names)}\n")
    with pytest.raises(UserError, match=r"no column 'input'; its columns are 'c0', .*'c11' and 188 more\. "):
        load_task(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.timeout(20)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(UserError, match=r"t\.csv': it is a pipe or a device, not a file"):
        load_task(tmp_path / "t.csv")


@pytest.mark.parametrize(("name", "reason"), [("x" * 400, "too long"), ("a\0b", "null byte"), ("a\0b.json", "null")])
def test_a_name_that_can_be_no_path_is_refused(name: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        load_task(name)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "t.csv", "input,output\na,b\n")

    def deny(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", deny)
    with pytest.raises(UserError, match=r"t\.csv': Permission denied"):
        load_task(path)
