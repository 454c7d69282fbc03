"""BIG-Bench Hard, ANLI and MMLU-Pro from files with their original fields."""

import json
from pathlib import Path
from typing import Any

import pytest

from site_interp.errors import UserError
from site_interp.tasks import Task, datasets_hub, list_tasks, load_suite, load_task


def movie(number: int, target: str) -> dict[str, str]:
    return {
        "input": f"Find a movie like number {number}:\nOptions:\n(A) Up\n(B) Monsters, Inc\n(C) Jaws",
        "target": target,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("bbh", "anli", "mmlu_pro"):
        (tmp_path / name).mkdir()
    examples = [movie(n, ("(A)", "Monsters, Inc", "(C)")[n % 3]) for n in range(20)]
    (tmp_path / "bbh/movie_recommendation.json").write_text(json.dumps({"canary": "c", "examples": examples}))
    sums = [{"input": f"{n} + 1 =", "target": str(n + 1)} for n in range(12)]
    (tmp_path / "bbh/sums.json").write_text(json.dumps({"canary": "c", "examples": sums}))
    nli = [
        {"uid": f"u{n}", "context": f"It is {n}.", "hypothesis": "It is late.", "label": "enc"[n % 3], "reason": "r"}
        for n in range(15)
    ]
    for part in ("r1", "r3"):
        (tmp_path / f"anli/{part}_dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nli))
    questions = [
        {
            "question_id": n, "question": f"Question {n}?", "options": ["one", "two", "three"][: 2 + n % 2],
            "answer": "AB"[n % 2], "answer_index": n % 2, "category": ("law", "computer science")[n % 2], "src": "s",
        }
        for n in range(30)
    ]  # fmt: skip
    (tmp_path / "mmlu_pro/test_sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    return tmp_path


def examples_of(task: Task) -> dict[str, tuple[str, ...]]:
    return {e.input: e.answers for e in (*task.train, *task.valid, *task.test)}


def test_bbh_keeps_inputs_and_turns_the_text_of_an_option_into_its_letter(data: Path) -> None:
    task = load_task("bbh/movie_recommendation", data_dir=data)
    found = examples_of(task)
    assert len(found) == 20
    assert found[movie(1, "")["input"]] == ("(B)",)
    assert {answer for answers in found.values() for answer in answers} == {"(A)", "(B)", "(C)"}
    assert (len(task.train), len(task.valid), len(task.test)) == (12, 2, 6), "cut 60/10/30 by the split seed"
    assert examples_of(load_task("bbh/sums", data_dir=data))["3 + 1 ="] == ("4",)


def test_anli_asks_for_one_of_three_words(data: Path) -> None:
    found = examples_of(load_task("anli/r1", data_dir=data))
    assert found["It is 0.\nQuestion: It is late. True, False, or Neither?"] == ("True",)
    assert found["It is 1.\nQuestion: It is late. True, False, or Neither?"] == ("Neither",)
    assert found["It is 2.\nQuestion: It is late. True, False, or Neither?"] == ("False",)


def test_mmlu_pro_lists_its_options_by_letter_and_is_one_task_for_each_category(data: Path) -> None:
    found = examples_of(load_task("mmlu_pro/computer_science", data_dir=data))
    assert len(found) == 15
    assert found["Question 1?\nOptions:\nA. one\nB. two\nC. three"] == ("B",)
    assert "Question 0?\nOptions:\nA. one\nB. two" in examples_of(load_task("mmlu_pro/law", data_dir=data))


def test_listings_and_suites_hold_what_the_folder_holds(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [info.name for info in list_tasks(data) if info.source != "bundled"]
    benchmarks = [
        "bbh/movie_recommendation",
        "bbh/sums",
        "anli/r1",
        "anli/r3",
        "mmlu_pro/computer_science",
        "mmlu_pro/law",
    ]
    assert names == benchmarks
    assert [task.name for task in load_suite("anli", data_dir=data)] == ["anli/r1", "anli/r3"]
    monkeypatch.setenv("SITE_INTERP_DATA", str(data))
    assert [task.name for task in load_suite("mmlu_pro")] == ["mmlu_pro/computer_science", "mmlu_pro/law"]


def test_benchmarks_of_multiple_choice_know_their_options(data: Path) -> None:
    movies, anli, law = (
        load_task(name, data_dir=data) for name in ("bbh/movie_recommendation", "anli/r1", "mmlu_pro/law")
    )
    assert movies.options is not None
    assert movies.options.of(movies.test[0].input) == ("(A)", "(B)", "(C)")
    assert movies.chance() == pytest.approx(1 / 3)
    assert anli.options is not None
    assert anli.options.of(anli.test[0].input) == ("True", "Neither", "False")
    assert law.options is not None
    assert (law.options.of(law.test[0].input), law.chance()) == (("A", "B"), 0.5)
    sums = load_task("bbh/sums", data_dir=data)
    assert (sums.options, sums.chance()) == (None, None)


def test_a_choice_that_lists_no_options_is_known_by_name(data: Path) -> None:
    rows = [{"input": f"not True and {n} is", "target": ("True", "False")[n % 2]} for n in range(12)]
    (data / "bbh/boolean_expressions.json").write_text(json.dumps({"examples": rows}))
    task = load_task("bbh/boolean_expressions", data_dir=data)
    assert task.options is not None
    assert task.options.of(task.test[0].input) == ("True", "False")


HUB_LABELS = ["entailment", "neutral", "contradiction"]


def on_the_hub(data: Path) -> dict[tuple[str, str | None], dict[str, Any]]:
    """The same rows as in the folder, in the fields and splits of the hub; ANLI and MMLU-Pro have others as well."""
    from datasets import ClassLabel, Dataset

    def rows(file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (data / file).read_text().splitlines()]

    movies = Dataset.from_list(json.loads((data / "bbh/movie_recommendation.json").read_text())["examples"])
    nli = [
        {"uid": r["uid"], "premise": r["context"], "hypothesis": r["hypothesis"], "label": "enc".index(r["label"])}
        for r in rows("anli/r1_dev.jsonl")
    ]
    rounds = Dataset.from_list(nli).cast_column("label", ClassLabel(names=HUB_LABELS))
    other = Dataset.from_list(nli[:2]).cast_column("label", ClassLabel(names=HUB_LABELS))
    mmlu = Dataset.from_list(rows("mmlu_pro/test_sample.jsonl"))
    return {
        ("lukaemon/bbh", "movie_recommendation"): {"test": movies},
        ("facebook/anli", None): {"train_r1": other, "dev_r1": rounds, "dev_r2": other, "test_r1": other},
        ("TIGER-Lab/MMLU-Pro", None): {"test": mmlu, "validation": mmlu.select(range(3))},
    }


@pytest.mark.parametrize(
    ("hub", "name"),
    [
        ("hub/lukaemon/bbh:movie_recommendation", "bbh/movie_recommendation"),
        ("hub/facebook/anli:r1", "anli/r1"),
        ("hub/TIGER-Lab/MMLU-Pro:law", "mmlu_pro/law"),
    ],
)
def test_the_hub_gives_the_same_task_as_the_files(
    data: Path, monkeypatch: pytest.MonkeyPatch, hub: str, name: str
) -> None:
    sets = on_the_hub(data)
    monkeypatch.setattr(datasets_hub, "_load", lambda data_id, config, _: sets[data_id, config])
    task = load_task(hub)
    assert task == load_task(name, data_dir=data)
    assert task.split_hash == load_task(name, data_dir=data).split_hash


@pytest.mark.parametrize(
    ("hub", "told"),
    [
        (
            "hub/facebook/anli",
            r"Adversarial NLI is several tasks. Name one behind a colon, such as hub/facebook/anli:r1",
        ),
        ("hub/facebook/anli:r4", r"such as hub/facebook/anli:r1"),
        ("hub/facebook/anli:r3", r"has the splits train_r1, dev_r1, dev_r2, test_r1 and not 'dev_r3'"),
        ("hub/TIGER-Lab/MMLU-Pro:laws", r"there are computer_science, law.*Did you mean law"),
    ],
)
def test_a_benchmark_of_the_hub_without_a_task_of_it_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, hub: str, told: str
) -> None:
    sets = on_the_hub(data)
    monkeypatch.setattr(datasets_hub, "_load", lambda data_id, config, _: sets[data_id, config])
    with pytest.raises(UserError, match=told):
        load_task(hub)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bbh/sum", "has bbh/movie_recommendation, bbh/sums. Did you mean bbh/sums"),
        ("anli/r2", "has anli/r1, anli/r3"),
        ("mmlu_pro/history", "has mmlu_pro/computer_science, mmlu_pro/law"),
    ],
)
def test_a_task_that_is_not_there_is_told_with_those_that_are(data: Path, name: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_task(name, data_dir=data)


def test_without_a_data_folder_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SITE_INTERP_DATA", raising=False)
    with pytest.raises(UserError, match="holds anli/, or set SITE_INTERP_DATA"):
        load_task("anli/r1")
    with pytest.raises(UserError, match="no data folder is known"):
        load_suite("bbh")
    with pytest.raises(UserError, match="holds none of its files"):
        load_suite("bbh", data_dir=tmp_path)


BBH, ANLI, MMLU = "bbh/sums.json", "anli/r1_dev.jsonl", "mmlu_pro/test_sample.jsonl"


@pytest.mark.parametrize(
    ("file", "content", "name", "told"),
    [
        (BBH, {"rows": []}, "bbh/sums", "has no list of examples"),
        (BBH, {"examples": [{"input": "1 +"}]}, "bbh/sums", "example 1 has no text as its 'target'"),
        (ANLI, {"context": "c", "hypothesis": "h", "label": "x"}, "anli/r1", "label 'x', not one of e, n, c"),
        (ANLI, {"hypothesis": "h", "label": "e"}, "anli/r1", "no text as its 'context'"),
        (MMLU, {"question": "q", "category": "law", "options": "ab"}, "mmlu_pro/law", "no list of 2 to 10 options"),
        (
            MMLU,
            {"question": "q", "category": "law", "options": ["a", "b"], "answer": "C"},
            "mmlu_pro/law",
            "answer 'C'",
        ),
    ],
)
def test_rows_that_are_not_the_benchmarks_are_refused(
    data: Path, file: str, content: Any, name: str, told: str
) -> None:
    (data / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=told):
        load_task(name, data_dir=data)
