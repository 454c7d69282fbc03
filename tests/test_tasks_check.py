"""The linter: each finding from a small file that shows it, and none above a note from a clean task."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import WORDS

from site_interp.cli import main
from site_interp.errors import UserError
from site_interp.prompts import QA, Template
from site_interp.task_checks import check_answers, check_named
from site_interp.tasks import Example, Task, load_task
from site_interp.tasks.check import Finding, check_task

Pair = tuple[str, object]

CLEAN: list[Pair] = [(f"ask {n:03}", f"{n:03} told") for n in range(100)]


def write_rows(path: Path, pairs: Sequence[Pair]) -> Path:
    path.write_text(json.dumps([{"input": text, "output": answer} for text, answer in pairs]), encoding="utf-8")
    return path


def checked(path: Path | str, template: Template = QA, n_shots: int = 10) -> dict[str, Finding]:
    findings, _ = check_named(path, template, n_shots=n_shots)
    assert len({found.check for found in findings}) == len(findings)
    return {found.check: found for found in findings}


def check_pairs(folder: Path, pairs: Sequence[Pair], **settings: Any) -> dict[str, Finding]:
    return checked(write_rows(folder / "t.json", pairs), **settings)


def test_a_clean_file_and_a_clean_bundled_task_give_nothing_above_a_note(tmp_path: Path) -> None:
    assert {found.level for found in check_pairs(tmp_path, CLEAN).values()} == {"ok"}
    assert {found.level for found in checked("antonym").values()} == {"ok", "note"}


def test_the_encoding_is_named(tmp_path: Path) -> None:
    text = "input,output\n" + "".join(f"{text},{answer}\n" for text, answer in CLEAN)
    path = tmp_path / "t.csv"
    for encoding, level, name in (
        ("utf-8", "ok", "UTF-8."),
        ("utf-8-sig", "note", "UTF-8 with a byte-order mark."),
        ("utf-16", "note", "UTF-16."),
    ):
        path.write_bytes(text.encode(encoding))
        found = checked(path)["encoding"]
        assert (found.level, found.message) == (level, name)


def test_rows_without_input_or_answer_are_an_error_and_the_other_rows_are_checked(tmp_path: Path) -> None:
    findings = check_pairs(tmp_path, [*CLEAN, ("blank", " "), ("", "x"), ("null", None), ("none", [])])
    found = findings["rows"]
    assert (found.level, found.count) == ("error", 4)
    assert found.examples == ("'row 101'", "'row 102'", "'row 103'")
    assert "row 101 needs an answer" in found.message
    assert findings["sizes"].message == "60 train, 10 valid, 30 test examples."


def test_a_file_without_any_row_that_can_be_used_is_refused_as_when_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"question": "a", "answer": "b"}]')
    with pytest.raises(UserError) as loading:
        load_task(path)
    with pytest.raises(UserError) as checking:
        checked(path)
    assert str(checking.value) == str(loading.value)


def test_white_space_is_a_warning_at_inputs_and_a_note_at_answers(tmp_path: Path) -> None:
    found = check_pairs(tmp_path, [*CLEAN, (" in", "x"), ("out\n", "y"), ("z", "z ")])["white space"]
    assert (found.level, found.count, found.examples) == ("warning", 2, ("' in'", r"'out\n'"))
    found = check_pairs(tmp_path, [*CLEAN, ("y", ["one", " two"])])["white space"]
    assert (found.level, found.count, found.examples) == ("note", 1, ("' two'",))


def test_repeated_rows_are_counted_beyond_the_first(tmp_path: Path) -> None:
    found = check_pairs(tmp_path, [*CLEAN, CLEAN[0], CLEAN[0], CLEAN[1]])["repeated rows"]
    assert (found.level, found.count) == ("note", 3)
    assert found.examples == ("'ask 000 -> 000 told'", "'ask 001 -> 001 told'")


def test_leaks_are_as_many_as_loading_leaves_out(tmp_path: Path) -> None:
    folder = tmp_path / "leaky"
    folder.mkdir()
    write_rows(folder / "train.json", CLEAN[:40])
    write_rows(folder / "valid.json", CLEAN[40:60])
    write_rows(folder / "test.json", [*CLEAN[60:], CLEAN[0], CLEAN[41], ("ask 001", "other")])
    found = checked(folder)["leaks"]
    assert (found.level, found.count, found.examples) == ("warning", 2, ("'ask 000'", "'ask 041'"))
    assert load_task(folder).n_leaked == 2


@pytest.mark.parametrize(
    ("n_rows", "n_shots", "level"), [(100, 59, "ok"), (100, 60, "error"), (99, 5, "ok"), (66, 5, "warning")]
)
def test_too_few_training_examples_are_an_error_and_few_others_a_warning(
    tmp_path: Path, n_rows: int, n_shots: int, level: str
) -> None:
    assert check_pairs(tmp_path, CLEAN[:n_rows], n_shots=n_shots)["sizes"].level == level


def test_fewer_inputs_than_splits_are_an_error(tmp_path: Path) -> None:
    found = check_pairs(tmp_path, CLEAN[:2])["splits"]
    assert (found.level, "2 distinct inputs" in found.message) == ("error", True)


def test_several_answers_are_a_note_for_words_and_a_warning_for_labels(tmp_path: Path) -> None:
    found = check_pairs(tmp_path, [*CLEAN, ("ask 000", "else")])["several answers"]
    assert (found.level, found.count, found.examples) == ("note", 1, ("'ask 000 -> 000 told | else'",))
    labels: list[Pair] = [(f"ask {n}", "yes" if n % 2 else "no") for n in range(100)]
    found = check_pairs(tmp_path, [*labels, ("ask 0", "yes")])["several answers"]
    assert (found.level, found.examples) == ("warning", ("'ask 0 -> no | yes'",))


def test_a_majority_above_seventy_per_cent_is_a_warning(tmp_path: Path) -> None:
    for n, level in ((70, "ok"), (71, "warning")):
        found = check_pairs(tmp_path, [(f"ask {i}", "often" if i < n else "rare") for i in range(100)])
        assert (found["majority answer"].level, found["majority answer"].count) == (level, n)


def test_very_long_inputs_are_a_warning(tmp_path: Path) -> None:
    for n, level in ((8000, "ok"), (8001, "warning")):
        found = check_pairs(tmp_path, [*CLEAN, ("a" * n, "x")])["long inputs"]
        assert found.level == level
        assert f"{n:,} at most" in found.message
        assert check_pairs(tmp_path, [*CLEAN, ("x", "a" * n)])["long inputs"].level == level


def test_answers_that_begin_others_are_found_as_prefix_match_compares_them(tmp_path: Path) -> None:
    pairs = [*CLEAN, ("a", "Cat"), ("b", "category (n)"), ("c", "catalogue"), ("d", "en"), ("e", "hen")]
    found = check_pairs(tmp_path, pairs)["answers in answers"]
    assert (found.level, found.count, found.examples) == ("note", 1, ("'Cat begins catalogue'",))
    labels: list[Pair] = [(f"ask {n}", ("in", "inside", "out")[n % 3]) for n in range(90)]
    found = check_pairs(tmp_path, labels)["answers in answers"]
    assert (found.level, found.count, found.examples) == ("warning", 30, ("'in begins inside'",))


def test_letter_case_tells_answers_apart_where_the_task_says_so() -> None:
    rows = (Example("a", ("Cat",)), Example("b", ("catalogue",)), Example("c", ("dog",)))
    task = Task("file/t", rows, rows, rows)
    for sensitive, level in ((False, "warning"), (True, "ok")):
        found = next(f for f in check_answers(replace(task, case_sensitive=sensitive), QA) if "in answers" in f.check)
        assert found.level == level


def test_answers_that_prefix_match_never_finds_are_a_warning(tmp_path: Path) -> None:
    found = check_pairs(tmp_path, [*CLEAN, ("a", "(A)"), ("b", ["(B)", "B"])])["unmatchable answers"]
    assert (found.level, found.count, found.examples) == ("warning", 1, ("'(A)'",))


def test_answers_with_the_stop_text_are_a_warning(tmp_path: Path) -> None:
    pairs = [*CLEAN, ("a", "one\ntwo"), ("b", "one.two")]
    found = check_pairs(tmp_path, pairs)["stop text"]
    assert (found.level, found.examples) == ("warning", (r"'one\ntwo'",))
    assert check_pairs(tmp_path, pairs, template=Template(stop="."))["stop text"].examples == ("'one.two'",)


def test_the_echo_floor_is_the_share_of_test_examples_whose_input_begins_with_an_answer(tmp_path: Path) -> None:
    assert check_pairs(tmp_path, CLEAN)["echo floor"].count == 0
    copies: list[Pair] = [(f"word{n} and more", f"word{n}") for n in range(100)]
    found = check_pairs(tmp_path, copies)["echo floor"]
    assert (found.level, found.count) == ("warning", 30)
    assert "100%" in found.message
    folder = tmp_path / "given"
    folder.mkdir()
    for split, pairs in (("train", CLEAN[:40]), ("valid", CLEAN[40:60]), ("test", [*CLEAN[60:], *copies[:10]])):
        write_rows(folder / f"{split}.json", pairs)
    found = checked(folder)["echo floor"]  # 10 of 50
    assert (found.level, found.count) == ("note", 10)


# with a tokenizer


def word_task(pairs: Sequence[tuple[str, str]]) -> Task:
    rows = tuple(Example(text, (answer,)) for text, answer in pairs)
    return Task("file/words", rows, rows, rows[:4])


PLAIN = [(WORDS[n], WORDS[n + 1]) for n in range(40)]


def token_checked(llama: Any, task: Task, n_ctx: int = 256, n_shots: int = 2, **fields: str) -> dict[str, Finding]:
    from site_interp.token_checks import check_tokens

    findings = check_tokens(task, Template(**fields), llama.tokenizer, n_ctx=n_ctx, n_shots=n_shots)
    return {found.check: found for found in findings}


def test_a_clean_task_is_clean_under_a_tokenizer_too(llama: Any) -> None:
    assert {found.level for found in token_checked(llama, word_task(PLAIN)).values()} == {"ok"}


def test_answers_that_share_their_first_token_are_found_with_their_share(llama: Any) -> None:
    found = token_checked(llama, word_task([*PLAIN[:39], ("aa ab", f"{WORDS[1]} {WORDS[2]}")]))["first tokens"]
    assert (found.level, found.count) == ("note", 2)
    assert "(5%)" in found.message
    assert found.examples == (f"'{WORDS[1]} | {WORDS[1]} {WORDS[2]}'",)
    labels = [(WORDS[n], f"aa {WORDS[n % 2]}") for n in range(40)]
    found = token_checked(llama, word_task(labels))["first tokens"]
    assert (found.level, found.count) == ("warning", 40)


def test_answers_that_merge_with_the_prompt_are_an_error(llama: Any) -> None:
    found = token_checked(llama, word_task(PLAIN), answer_prefix="")["merging answers"]
    assert (found.level, found.count) == ("error", 84)
    assert found.examples[0] == f"'{PLAIN[0][0]} -> {PLAIN[0][1]}'"


def test_texts_that_hold_special_tokens_are_a_warning_and_unknown_words_are_not(llama: Any) -> None:
    task = word_task([*PLAIN[:38], ("aa <eos>", "ab"), ("unknown", "<bos>")])
    found = token_checked(llama, task)["special tokens"]
    assert (found.level, found.count, found.examples) == ("warning", 2, ("'aa <eos>'", "'<bos>'"))


def test_prompts_beyond_the_context_are_an_error_and_possible_ones_a_warning(llama: Any) -> None:
    """`Q: aa\\nA:` is four tokens, a demonstration of one word and one word seven."""
    long = " ".join(WORDS[:11])
    task = word_task([*PLAIN[:4], *PLAIN[5:40], (long, "ab")])
    found = token_checked(llama, task, n_ctx=14)
    assert (found["zero-shot length"].level, found["zero-shot length"].count) == ("ok", 0)
    assert "has 14 tokens" in found["zero-shot length"].message
    assert (found["2-shot length"].level, found["2-shot length"].count) == ("error", 4)
    found = token_checked(llama, task, n_ctx=13)
    assert (found["zero-shot length"].level, found["zero-shot length"].count) == ("error", 1)
    found = token_checked(llama, task, n_ctx=27)["2-shot length"]
    assert (found.level, "up to 18 tokens" in found.message, "would be 28" in found.message) == ("warning", True, True)
    assert token_checked(llama, task, n_ctx=28)["2-shot length"].level == "ok"


def test_a_tokenizer_without_its_model_is_the_same(llama: Any) -> None:
    from site_interp.model import load_tokenizer

    tokenizer, n_ctx = load_tokenizer(llama.name)
    assert n_ctx == llama.n_ctx == 256
    assert tokenizer("Q: aa\nA: ab").input_ids == llama.token_ids("Q: aa\nA: ab")
    with pytest.raises(UserError, match=r"Cannot load the model 'smollm-135m'.*Did you mean smollm2-135m"):
        load_tokenizer("smollm-135m")


# the verb


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["tasks", "check", *words])
    captured = capsys.readouterr()
    return int(left.value.code or 0), captured.out, captured.err


def test_the_verb_exits_0_with_warnings_1_with_an_error_and_2_where_nothing_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_rows(tmp_path / "t.json", [*CLEAN, ("[bold]x[/bold] ", "\x1b[31m")]))
    code, out, err = run(capsys, path)
    assert (code, err) == (0, "")
    assert "'[bold]x[/bold] '" in out
    assert "\x1b" not in out
    assert re.search(r"warning +white space +1 +Inputs that begin or end", out)
    code, out, _ = run(capsys, path, "--n-shots", "90")
    assert (code, "error" in out) == (1, True)
    (tmp_path / "t.json").write_text('[{"input": "a", "outp')
    code, out, err = run(capsys, path)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_verb_prints_json_and_asks_the_tokenizer_only_when_a_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], llama: Any
) -> None:
    path = str(write_rows(tmp_path / "t.json", CLEAN))
    code, out, _ = run(capsys, path, "--json")
    plain = [found["check"] for found in json.loads(out)["findings"]]
    assert (code, "first tokens" in plain) == (0, False)
    _, out, _ = run(capsys, path, "--json", "--model", str(llama.name))
    assert [found["check"] for found in json.loads(out)["findings"]] == [
        *plain, "merging answers", "first tokens", "special tokens", "zero-shot length", "10-shot length",
    ]  # fmt: skip


def test_a_task_can_be_checked_without_a_source() -> None:
    assert [found.check for found in check_task(load_task("antonym"), n_shots=10)] == [
        "sizes", "several answers", "majority answer", "long inputs",
    ]  # fmt: skip
