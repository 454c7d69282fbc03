"""Inputs and rows of several tasks in one batch: each is treated as if it were alone with its own adapter."""

import io
import itertools
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Oracle, reference_ids, reference_last_logits
from tiny_models import WORDS, on_every_device, on_every_family
from upper_fixtures import model_state, word_task

from site_interp import generation
from site_interp.adapter import Adapter
from site_interp.cli import main
from site_interp.embedding import embed_task
from site_interp.errors import UserError
from site_interp.generation import generate, inject
from site_interp.model import Model, load_model
from site_interp.prompts import QA, Template
from site_interp.selection import HeadSelection

BASE = "__base__"
ROWS = [
    ("aa", "one"),
    ("ab ac ad ae af ag ah", BASE),
    ("bb bc", "two"),
    ("bd", "one"),
    ("be bf bg", "two"),
    ("bh", BASE),
]
CLOSE = 1e-4  # logits of a tiny model in fp32

Adapters = dict[str, Adapter]


def made(model: Model, task: str, seed: int, **template: str) -> Adapter:
    """An adapter that moves a tiny model a lot, without a fit."""
    drawn = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(model.n_layers, model.n_heads, generator=drawn)
    embedding = embed_task(model, word_task(task), n_prompts=3, n_shots=2, template=replace(QA, **template))
    return Adapter(embedding, HeadSelection(logits))


@pytest.fixture(scope="module")
def made_for(tiny_folders: dict[str, Path]) -> Callable[[str], Adapters]:
    """Two adapters of different tasks and templates for a family."""
    kept: dict[str, Adapters] = {}

    def adapters(family: str) -> Adapters:
        if family not in kept:
            model = load_model(tiny_folders[family], device="cpu")
            other = made(model, "file/two", 3, input_prefix="ba bb ", answer_cue=" A:")
            kept[family] = {"one": made(model, "file/one", 2), "two": other}
        return kept[family]

    return adapters


@pytest.fixture
def adapters(made_for: Callable[[str], Adapters], family: str) -> Adapters:
    return made_for(family)


@pytest.fixture
def pair(made_for: Callable[[str], Adapters]) -> Adapters:
    """The adapters of `llama`."""
    return made_for("llama")


def split(rows: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [text for text, _ in rows], [name for _, name in rows]


def mixed(model: Model, adapters: Adapters, rows: Sequence[tuple[str, str]], **settings: Any) -> list[str]:
    texts, names = split(rows)
    return generate(model, texts, adapters, adapter_names=names, **settings)


def prompt_of(adapters: Adapters, text: str, name: str) -> str:
    how = QA if name == BASE else adapters[name].template
    return f"{how.input_prefix}{text}{how.answer_cue}"


def injected_by(adapters: Adapters, name: str) -> tuple[Any, ...]:
    return () if name == BASE else (adapters[name].embedding.mean, adapters[name].selection.alpha)


def expected(oracle: Oracle, adapters: Adapters, text: str, name: str) -> str:
    ids = reference_ids(oracle, prompt_of(adapters, text, name), 6, *injected_by(adapters, name))
    kept = ids[: ids.index(2)] if 2 in ids else ids
    written: str = oracle.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return written.split("\n")[0].strip()


# generate


@on_every_family
@on_every_device
def test_each_input_is_answered_with_its_own_adapter_and_template(
    model: Model, oracle: Oracle, adapters: Adapters
) -> None:
    wanted = [expected(oracle, adapters, *row) for row in ROWS]
    assert mixed(model, adapters, ROWS, max_new_tokens=6) == wanted
    other_names = [expected(oracle, adapters, text, name) for (text, _), (_, name) in itertools.pairwise(ROWS)]
    assert wanted[:-1] != other_names, "the adapters must matter here"


def test_answers_follow_their_inputs_through_any_order_choice_and_repetition(llama: Model, pair: Adapters) -> None:
    every = [(text, name) for text, _ in ROWS for name in ("one", "two", BASE)]
    alone = {
        (text, name): generate(llama, [text], pair.get(name), max_new_tokens=6)[0] for text, name in every
    }  # fmt: skip
    chooser = random.Random(0)
    for _ in range(12):
        rows = chooser.choices(every, k=chooser.randint(1, 12))
        assert mixed(llama, pair, rows, max_new_tokens=6) == [alone[row] for row in rows]


def test_inputs_named_base_are_answered_as_without_an_adapter(llama: Model, pair: Adapters) -> None:
    texts = [text for text, _ in ROWS]
    plain = generate(llama, texts)
    assert mixed(llama, pair, [(text, BASE) for text in texts]) == plain
    assert mixed(llama, {}, [(text, BASE) for text in texts]) == plain
    both = mixed(llama, pair, [(text, name) for text in texts for name in ("one", BASE)])
    assert both[1::2] == plain
    assert both[::2] == generate(llama, texts, pair["one"]) != plain


def test_inputs_of_all_tasks_go_through_the_model_in_one_batch_with_each_adapter_stacked_once(
    llama: Model, pair: Adapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = generation.injected_text

    def watched(prefixes: Any, intervention: Any, **settings: Any) -> list[str]:
        seen.append((prefixes, intervention))
        return real(prefixes, intervention, **settings)

    monkeypatch.setattr(generation, "injected_text", watched)
    rows = [(text, ("one", "two", BASE)[place % 3]) for place, (text, _) in enumerate(4 * ROWS)]
    mixed(llama, pair, rows, max_new_tokens=2)
    ((prefixes, intervention),) = seen
    assert len(prefixes) == len(intervention.alpha) == 24
    for place, row in enumerate(prefixes.rows.tolist()):
        name = rows[row][1]
        if name == BASE:
            assert not intervention.alpha[place].any()
        else:
            assert torch.equal(intervention.target[place], pair[name].embedding.mean)
            assert torch.equal(intervention.alpha[place], pair[name].selection.alpha)
    stacked, places = generation._stacked(llama, [pair.get(name) for _, name in rows])
    assert len(stacked.target) == len(stacked.alpha) == 3
    assert places.tolist() == [0, 1, 2] * 8


def test_inputs_beyond_one_batch_and_beyond_the_budget_keep_their_adapters(llama: Model, pair: Adapters) -> None:
    texts = [f"{first} {second}" for first in WORDS[:9] for second in WORDS[:9]]
    rows = [(text, ("two", BASE, "one")[place % 3]) for place, text in enumerate(texts)]
    alone = {name: generate(llama, texts, pair.get(name), max_new_tokens=2) for name in ("one", "two", BASE)}
    wanted = [alone[name][place] for place, (_, name) in enumerate(rows)]
    assert mixed(llama, pair, rows, max_new_tokens=2) == wanted
    assert mixed(llama, pair, rows[:9], max_new_tokens=2, memory=1) == wanted[:9]


def test_each_answer_ends_at_the_stop_text_of_its_own_template(llama: Model, pair: Adapters) -> None:
    text, long = next((text, answer) for text in WORDS for answer in generate(llama, [text], pair["one"])
                      if len(set(answer.split())) > 3)  # fmt: skip
    stop = " " + long.split()[2]
    embedding = replace(
        pair["one"].embedding, template=Template("own", QA.input_prefix, QA.answer_cue, " ", "\n\n", stop)
    )
    early = Adapter(embedding, pair["one"].selection)
    rows = [(text, "late"), (text, "early"), (text, "late")]
    answers = mixed(llama, {"late": pair["one"], "early": early}, rows)
    assert answers == [long, long[: long.index(stop)].strip(), long]
    assert answers[1] != long


def test_raw_inputs_are_whole_prompts(llama: Model, pair: Adapters) -> None:
    raw = [(f"bc {text}\nA:", name) for text, name in ROWS]
    answers = mixed(llama, pair, raw, raw=True)
    assert answers == [generate(llama, [prompt], pair.get(name), raw=True)[0] for prompt, name in raw]
    assert answers != mixed(llama, pair, ROWS)


def test_a_template_is_for_the_inputs_without_an_adapter_and_refused_for_the_others(
    llama: Model, pair: Adapters
) -> None:
    other = replace(QA, input_prefix="bc ")
    assert mixed(llama, pair, [("aa", BASE)], template=other) == generate(llama, ["bc aa\nA:"], raw=True)
    with pytest.raises(UserError, match="fitted with 'qa': input_prefix"):
        mixed(llama, pair, [("aa", BASE), ("ab", "one")], template=other)


def test_no_inputs_and_no_names_give_no_answers(llama: Model, pair: Adapters) -> None:
    assert mixed(llama, pair, []) == []


# inject


def padded(model: Model, prompts: Sequence[str], side: str = "left") -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Ids and mask of prompts padded on a side, and the column of each one's last token."""
    rows = [model.token_ids(prompt) for prompt in prompts]
    width = max(map(len, rows))
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    for place, row in enumerate(rows):
        columns = slice(width - len(row), width) if side == "left" else slice(len(row))
        ids[place, columns], mask[place, columns] = torch.tensor(row), 1
    return ids, mask, [width - 1 if side == "left" else len(row) - 1 for row in rows]


@pytest.mark.parametrize("side", ["left", "right"])
def test_each_row_of_a_padded_batch_is_injected_with_its_own_adapter(
    model: Model, oracle: Oracle, adapters: Adapters, side: str
) -> None:
    prompts, names = [prompt_of(adapters, *row) for row in ROWS], split(ROWS)[1]
    ids, mask, ends = padded(model, prompts, side)
    arguments = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0), "return_type": "logits"}
    before = model_state(model)
    with torch.no_grad():
        plain = model.bridge(ids, **arguments)
        with inject(model, adapters, adapter_names=names) as receipt:
            logits = model.bridge(ids, **arguments)
    assert (receipt.n_forwards, receipt.n_injected, receipt.columns) == (1, len(ROWS) * model.n_layers, ends)
    assert model_state(model) == before
    for row, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
        wanted = reference_last_logits(oracle, prompt, *injected_by(adapters, name))
        torch.testing.assert_close(logits[row, ends[row]], wanted, atol=CLOSE, rtol=0)
        assert torch.equal(logits[row], plain[row]) == (name == BASE)


def test_generation_of_the_hugging_face_model_writes_each_row_with_its_own_adapter(
    model: Model, oracle: Oracle, adapters: Adapters
) -> None:
    prompts, names = [prompt_of(adapters, *row) for row in ROWS], split(ROWS)[1]
    ids, mask, _ = padded(model, prompts)
    with inject(model, adapters, adapter_names=names) as receipt:
        written = model.inner.generate(
            ids, attention_mask=mask, max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    assert (receipt.n_forwards, receipt.n_injected) == (1, len(ROWS) * model.n_layers)
    for row, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
        assert written[row, ids.shape[1] :].tolist() == reference_ids(oracle, prompt, 4, *injected_by(adapters, name))


def test_a_batch_of_another_number_of_rows_than_names_is_refused(llama: Model, pair: Adapters) -> None:
    ids = torch.tensor([llama.token_ids("Q: aa\nA:")] * 3)
    for names in (["one", "one"], ["one", "two", BASE, "one"], []):
        with pytest.raises(UserError, match="batch of 3 rows"), inject(llama, pair, adapter_names=names):
            llama.bridge(ids)


def test_a_single_name_serves_every_row(llama: Model, pair: Adapters) -> None:
    ids = torch.tensor([llama.token_ids("Q: aa\nA:"), llama.token_ids("Q: ab\nA:")])
    with torch.no_grad():
        with inject(llama, pair["two"]):
            wanted = llama.bridge(ids, return_type="logits")
        with inject(llama, pair, adapter_names=["two"]):
            assert torch.equal(llama.bridge(ids, return_type="logits"), wanted)


# What is refused


@pytest.mark.parametrize("call", [lambda *args, **names: generate(args[0], ["aa", "ab"], args[1], **names), inject])
def test_names_that_fit_no_adapter_are_refused_by_both(llama: Model, pair: Adapters, call: Callable[..., Any]) -> None:
    with pytest.raises(
        UserError, match=r"no adapter is called 'tow', there are one, two, __base__. Did you mean two\?"
    ):
        call(llama, pair, adapter_names=["one", "tow"])
    with pytest.raises(UserError, match=r"no adapter is called 'zzz', .* Take one"):
        call(llama, pair, adapter_names=["zzz", "one"])
    for adapter, names in ((pair, None), (pair["one"], ["one", "one"])):
        with pytest.raises(UserError, match="Give both, or one adapter"):
            call(llama, adapter, adapter_names=names)
    with pytest.raises(UserError, match="the name means none"):
        call(llama, {**pair, BASE: pair["one"]}, adapter_names=["one", BASE])


def test_a_name_for_each_input_is_needed(llama: Model, pair: Adapters) -> None:
    for names in (["one"], ["one", "two", "one"]):
        with pytest.raises(UserError, match=f"2 inputs with {len(names)} adapter names"):
            generate(llama, ["aa", "ab"], pair, adapter_names=names)


def test_an_adapter_of_another_model_among_several_is_refused(
    llama: Model, pair: Adapters, made_for: Callable[[str], Adapters]
) -> None:
    several = {**pair, "far": made_for("gpt2")["one"]}
    with pytest.raises(UserError, match="type gpt2 against llama"):
        generate(llama, ["aa"], several, adapter_names=["one"])
    with pytest.raises(UserError, match="type gpt2 against llama"):
        inject(llama, several, adapter_names=["one"])


# The command line

LINES = [{"input": text, "adapter": name} for text, name in ROWS]
Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """`site-interp generate` on lines from stdin: exit code, stdout, stderr."""

    def run(lines: Sequence[object], *arguments: object) -> tuple[int, str, str]:
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with pytest.raises(SystemExit) as leaving:
            main(["generate", *map(str, arguments)])
        shown = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return leaving.value.code, shown.out, shown.err

    return run


@pytest.fixture(scope="module")
def saved(made_for: Callable[[str], Adapters], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of saved adapters: `one`, `two`, and `far` of another model. Read only."""
    root = tmp_path_factory.mktemp("saved")
    for name, adapter in {**made_for("llama"), "far": made_for("gpt2")["one"]}.items():
        adapter.save_pretrained(root / name)
    return root


def test_generate_takes_several_adapters_and_answers_in_the_order_of_the_lines(
    command: Shown, llama: Model, pair: Adapters, saved: Path
) -> None:
    code, out, err = command(LINES, "--jsonl", "--adapter", saved / "one", "--adapter", saved / "two")
    assert (code, err) == (0, "")
    answers = mixed(llama, pair, ROWS)
    assert [json.loads(line) for line in out.splitlines()] == [
        {**line, "output": answer} for line, answer in zip(LINES, answers, strict=True)
    ]


def test_adapters_are_named_by_their_task_or_as_asked(
    command: Shown, llama: Model, pair: Adapters, saved: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "x=y"
    pair["two"].save_pretrained(odd)
    lines = [{"input": "aa", "adapter": "mine"}, {"input": "aa", "adapter": "two"}]
    code, out, _ = command(lines, "--jsonl", "--adapter", f"mine={saved / 'one'}", "--adapter", odd)
    assert code == 0
    assert [json.loads(line)["output"] for line in out.splitlines()] == mixed(
        llama, pair, [("aa", "one"), ("aa", "two")]
    )


def test_lines_may_name_a_single_adapter_or_none_at_all(
    command: Shown, llama: Model, pair: Adapters, saved: Path, tiny_folders: dict[str, Path]
) -> None:
    lines = [{"input": "aa", "adapter": BASE}, {"input": "ab", "adapter": "one"}]
    code, out, _ = command(lines, "--jsonl", "--adapter", saved / "one")
    assert code == 0
    assert [json.loads(line)["output"] for line in out.splitlines()] == mixed(
        llama, pair, [("aa", BASE), ("ab", "one")]
    )
    code, out, _ = command(lines[:1], "--jsonl", "--model", tiny_folders["llama"])
    assert (code, json.loads(out)["output"]) == (0, generate(llama, ["aa"])[0])


@pytest.mark.parametrize(
    ("lines", "arguments", "said"),
    [
        (["aa", "ab"], "ONE TWO", "which adapter line 1 of stdin is for: it names none"),
        ([LINES[0], "", {"input": "ab"}], "--jsonl ONE TWO", "which adapter line 3 of stdin is for"),
        ([LINES[0], '"ab"'], "--jsonl ONE", "which adapter line 2 of stdin is for"),
        ([LINES[0], {"input": "a", "adapter": "tow"}], "--jsonl ONE TWO", "line 2 of stdin: no adapter is called"),
        ([LINES[0], {"input": "a", "adapter": "tow"}], "--jsonl ONE TWO", "Did you mean two?"),
        ([{"input": "a", "adapter": "one"}], "--jsonl --model TINY", "'one', there are __base__"),
        ([{"input": "a", "adapter": 1}], "--jsonl ONE TWO", 'line 1 of stdin: its "adapter" is 1, not a name'),
        ([LINES[0]], "--jsonl ONE ONE", "two are called 'one'"),
        ([LINES[0]], "--jsonl BASE", "'__base__' cannot be an adapter's name"),
        ([LINES[0]], "--jsonl NOBODY", "'' cannot be an adapter's name"),
        ([LINES[0]], "--jsonl ONE FAR", "type gpt2 against llama"),
        ([LINES[0]], "--jsonl ONE NOWHERE", "Cannot load an adapter from nowhere"),
    ],
)  # fmt: skip
def test_mixed_inputs_that_cannot_be_used_give_exit_code_2_and_one_line(
    command: Shown, saved: Path, tiny_folders: dict[str, Path], lines: list[object], arguments: str, said: str
) -> None:
    places: dict[str, list[object]] = {
        "ONE": ["--adapter", saved / "one"],
        "TWO": ["--adapter", saved / "two"],
        "FAR": ["--adapter", f"far={saved / 'far'}"],
        "BASE": ["--adapter", f"{BASE}={saved / 'one'}"],
        "NOBODY": ["--adapter", f"={saved / 'one'}"],
        "NOWHERE": ["--adapter", "two=nowhere"],
        "TINY": [tiny_folders["llama"]],
    }
    code, out, err = command(lines, *itertools.chain(*(places.get(word, [word]) for word in arguments.split())))
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("site-interp: ")
    assert len(err.splitlines()) == 1
