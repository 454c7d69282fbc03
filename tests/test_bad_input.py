"""What a user can get wrong, one row each: a plain sentence, exit code 2, no traceback, and nothing written or lost."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import WORDS
from upper_fixtures import PATIENCE, fitted_adapter, no_pictures, quick_site, word_task

import site_interp.model
from site_interp import embedding, files
from site_interp.adapter import CONFIG_NAME, WEIGHTS_NAME, Adapter
from site_interp.baselines import ICL, Echo, Method, TaskVector, ZeroShot
from site_interp.cli import main
from site_interp.embedding import embed_prompts, embed_task
from site_interp.errors import NotFiniteError, UserError
from site_interp.evaluation import evaluate
from site_interp.experiments.plan import plan_units
from site_interp.experiments.run import run_units
from site_interp.generation import generate, inject
from site_interp.injection import Intervention, injected_text
from site_interp.model import Model
from site_interp.prefixes import encode_prompts
from site_interp.prompts import CHAT, Template, load_template
from site_interp.selection import HeadSelection
from site_interp.store import read_results
from site_interp.tasks import load_task

QUICK = "--n-shots 2 --n-prompts 2 --steps 2 --model TINY"
N_CTX = 256  # of the tiny models


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def saved(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of a bundled task; read only."""
    folder = tmp_path_factory.mktemp("saved") / "adapter"
    fitted_adapter(llama, load_task("antonym")).save_pretrained(folder)
    return folder


def rows(*pairs: tuple[str, str], names: tuple[str, str] = ("input", "output")) -> bytes:
    return "".join(json.dumps(dict(zip(names, pair, strict=True))) + "\n" for pair in pairs).encode()


PAIRS = [(f"{word} {WORDS[(7 * place) % 50]}", WORDS[place + 1]) for place, word in enumerate(WORDS[:40])]
FILES: dict[str, bytes] = {
    "FILE": b"no json\n",
    "EMPTY": b"\n \n",
    "LATIN": b"a\xe9\n",
    "NUMBER": b"{}\n",
    "HALF": b'"\\ud800"\n',
    "DIGITS": b"9" * 5000 + b"\n",
    "LONG": b"aa " * (N_CTX + 1),
    "words.jsonl": rows(*PAIRS),
    "long.jsonl": rows(*((f"{text} " * 100, answer) for text, answer in PAIRS)),
    "few.jsonl": rows(*PAIRS[:5]),
    "empty.jsonl": b"",
    "cut.jsonl": rows(*PAIRS)[:-9],
    "cut.json": b'[{"input": "a", "output": "b"}, {"inp',
    "cut.csv": b'input,output\na,"b\n',
    "columns.csv": b"from,to\na,b\n",
    "list.json": b"[1, 2]",
    "template.json": b'{"stop": ""}',
    "cue.json": b'{"answer_cue": "A: "}',
    "cut_template.json": b'{"stop": "',
    "list_template.json": b"[]",
    "field.json": b'{"stopp": "x"}',
    "numbers.json": b'{"stop": 1}',
    "damaged/results.jsonl": b"{}\n{}\n",
    "torn/results.jsonl": b'{"model": \n{"model": \n',
    "folder/results.jsonl/file": b"",
}
COMMANDS: dict[str, tuple[str, str]] = {
    # names
    "unknown task": ("run --task antonim --model TINY", "Did you mean bundled/antonym"),
    "unknown task to show": ("tasks show antonim", "Did you mean bundled/antonym"),
    "a name longer than a file's": (f"run --task {'a' * 300} --model TINY", "File name too long"),
    "no suite": ("run --suite= --model TINY", "Cannot load suite ''"),
    "no model": ("run --task antonym --model=", "Give a bundled name, a folder or a Hugging Face id"),
    "no data set": ("tasks check hub/../..", "that is no data set's id"),
    "unknown suite": ("run --suite demos --model TINY", "Did you mean demo"),
    "no task": ("fit --out x --model TINY", "Give --task NAME or --suite NAME"),
    "unknown method": ("run --task antonym --method sit --model TINY", "Did you mean site"),
    "unknown model": ("run --task antonym --model smolm2-135m", "Did you mean smollm2-135m"),
    "a file for a model": ("run --task antonym --model FILE", "Cannot load the model 'FILE'"),
    "unknown template": ("run --task antonym --template qaa --model TINY", "Did you mean qa"),
    "a template name longer than a file's": (f"run --task antonym --template {'a' * 300}", "Cannot find the template"),
    "unknown preset": ("run --task antonym --preset papper --model TINY", "Did you mean paper"),
    "unknown checkpoint": ("run --task antonym --checkpoint lasst --model TINY", "Did you mean last"),
    "unknown verb": ("runn", "Did you mean 'run'"),
    "unknown option": ("run --tusk antonym", "--tusk"),
    "missing argument": ("eval", "Missing argument 'adapter'"),
    "missing option": ("fit --task antonym", "--out"),
    "data folder unknown": ("run --task fv/antonym --model TINY", "--data-dir"),
    "no data folder": ("run --data-dir nowhere --task fv/antonym --model TINY", "nowhere"),
    # task files
    "no such file": (f"run --task gone.jsonl {QUICK}", "there is no such file"),
    "an empty file": (f"run --task empty.jsonl {QUICK}", "the file is empty"),
    "a line cut off": (f"run --task cut.jsonl {QUICK}", "The file may be cut off"),
    "a list cut off": (f"fit --task cut.json --out new {QUICK}", "not valid JSON at line 1"),
    "a quote cut off": (f"run --task cut.csv {QUICK}", "cannot be read"),
    "rows that are no objects": ("tasks show list.json", "row 1 is not an object"),
    "wrong columns": (f"run --task columns.csv {QUICK}", "no column 'input'; its columns are 'from', 'to'"),
    "a column that is not there": ("tasks show words.jsonl --input-column frm", "no column 'frm'"),
    "too few examples": ("fit --task few.jsonl --n-shots 30 --out new --model TINY", "needs 31 distinct training"),
    "more shots than examples": ("tasks show-prompt words.jsonl --n-shots 99", "needs 99 distinct training"),
    "prompts longer than the context": (f"fit --task long.jsonl --out new {QUICK}", "longer than the context of"),
    # template files
    "a template without a stop": ("run --task antonym --template template.json", "stop text is empty"),
    "a template whose cue ends in a space": ("run --task antonym --template cue.json", "answer cue is 'A: '"),
    "a template cut off": ("run --task antonym --template cut_template.json", "is not valid JSON"),
    "a list for a template": ("run --task antonym --template list_template.json", "it has ['list']"),
    "a template with an unknown field": ("run --task antonym --template field.json", "it has ['stopp']"),
    "a template of numbers": ("run --task antonym --template numbers.json", "every field must be text"),
    "a folder for a template": ("run --task antonym --template damaged", "Cannot find the template 'damaged'"),
    # settings
    "no test examples": ("run --task antonym --n-test 0 --model TINY", "--n-test"),
    "a word for a number": ("run --task antonym --steps many --model TINY", "--steps"),
    "no steps": ("run --task antonym --steps 0 --model TINY", "--steps"),
    "no examples in a step": ("fit --task antonym --out new --batch-size 0 --model TINY", "--batch-size"),
    "no prompts": ("fit --task antonym --out new --n-prompts 0 --model TINY", "--n-prompts"),
    "negative shots": ("run --task antonym --n-shots -1 --model TINY", "--n-shots"),
    "no new tokens": ("generate words.jsonl --max-new-tokens 0 --model TINY", "--max-new-tokens"),
    "learning rate of 0": ("run --task antonym --lr 0 --model TINY", "Give a finite number above 0"),
    "negative learning rate": ("run --task antonym --lr=-0.1 --model TINY", "Give a finite number above 0"),
    "learning rate that is no number": ("run --task antonym --lr nan --model TINY", "Give a finite number above 0"),
    "endless learning rate": ("fit --task antonym --out new --lr inf --model TINY", "Give a finite number above 0"),
    "seeds in disorder": ("run --task antonym --seeds 3-1 --model TINY", "write them as 0, 0,1,2 or 0-2"),
    "negative seeds": ("run --task antonym --seeds=-1 --model TINY", "write them as 0, 0,1,2 or 0-2"),
    "half a seed": ("run --task antonym --seeds 1.5 --model TINY", "write them as 0, 0,1,2 or 0-2"),
    "a seed twice": ("run --task antonym --seeds 0,1,0 --model TINY", "0 stands twice"),
    "a seed twice in ranges": ("fit --task antonym --out new --seeds 0-2,2 --model TINY", "2 stands twice"),
    "far too many seeds": ("run --task antonym --seeds 0-99999999999 --model TINY", "more than 1000"),
    "too little memory": ("run --task antonym --memory 1M --model TINY", "at least 64M"),
    "no memory": ("run --task antonym --memory 0 --model TINY", "write it as 4G or 800M"),
    "negative memory": ("run --task antonym --memory=-4G --model TINY", "write it as 4G or 800M"),
    "memory in words": ("generate words.jsonl --memory 4bananas --model TINY", "write it as 4G or 800M"),
    "endless memory": ("eval adapter --memory inf", "write it as 4G or 800M"),
    "unknown device": ("run --task antonym --device gpu --model TINY", "Use 'auto', 'cpu' or 'cuda'"),
    "a device without data": ("run --task antonym --device meta --model TINY", "Use 'auto', 'cpu' or 'cuda'"),
    "a device that torch was built without": ("run --task antonym --device mps --model TINY", "Use 'cpu'"),
    "unknown precision": ("run --task antonym --dtype int8 --model TINY", "use one of float32"),
    # adapters
    "no adapter": ("eval nowhere", "there is no adapter_config.json"),
    "a file for an adapter": ("eval FILE", "adapter_config.json cannot be read"),
    "no adapter to generate with": ("generate FILE --adapter nowhere", "there is no adapter_config.json"),
    "adapter of another model": ("eval adapter --model GPT2", "type llama against gpt2"),
    "adapter of another model to generate with": (
        "generate words.jsonl --adapter adapter --model GPT2",
        "type llama against gpt2",
    ),
    "adapter of another split": ("eval adapter --split-seed 1", "another split"),
    "adapter of another template": (
        "generate words.jsonl --adapter adapter --template chat",
        "fitted with 'qa': input_prefix 'Q: ' against '<|im_start|>user\\n'",
    ),
    # output
    "output below a file": ("run --task antonym --method echo --model TINY --out FILE/out", "Cannot write to FILE/out"),
    "a file for the output": ("run --task antonym --method echo --model TINY --out FILE", "Cannot write to FILE"),
    "an output name longer than a file's": (
        f"run --task words.jsonl --method echo --model TINY --out {'a' * 300}",
        "File name too long",
    ),
    "adapter below a file": ("fit --task antonym --model TINY --out FILE/out", "Cannot write to FILE/out"),
    "a file for the adapter": ("fit --task antonym --model TINY --out FILE", "Cannot write to FILE"),
    "records below a file": ("eval adapter --n-test 1 --out FILE/out", "Cannot write to FILE/out"),
    "an adapter of other data in its place": (f"fit --task words.jsonl --out adapter {QUICK}", "made with other data"),
    "damaged results": ("run --task words.jsonl --method echo --out damaged --model TINY", "results.jsonl, line 1"),
    "results torn in the middle": ("run --task words.jsonl --out torn --model TINY", "line 1 is damaged"),
    "a folder for results": ("run --task words.jsonl --method echo --out folder --model TINY", "Cannot read folder"),
    # inputs
    "generate without inputs": ("generate EMPTY --model TINY", "has no inputs"),
    "generate from nowhere": ("generate nowhere.txt --model TINY", "Cannot read inputs from nowhere.txt"),
    "inputs in another encoding": ("generate LATIN --model TINY", "byte 1 is not UTF-8"),
    "lines that are no JSON": ("generate FILE --jsonl --model TINY", "line 1 of"),
    "JSON without an input": ("generate NUMBER --jsonl --model TINY", 'neither a text nor {"input": text}'),
    "a number of thousands of digits": ("generate DIGITS --jsonl --model TINY", "Correct the line"),
    "half a character": ("generate HALF --jsonl --model TINY", "half a character"),
    "an input longer than the context": ("generate LONG --model TINY", "longer than the context of"),
}


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        held = load_file(folder / WEIGHTS_NAME)
        change(held)
        save_file(held, folder / WEIGHTS_NAME)

    return spoil


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def config(**changes: Any) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        values = json.loads((folder / CONFIG_NAME).read_text())
        (folder / CONFIG_NAME).write_text(json.dumps({**values, **changes}))

    return spoil


ADAPTERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda f: (f / CONFIG_NAME).unlink(), "there is no adapter_config.json"),
    "no weights": (lambda f: (f / WEIGHTS_NAME).unlink(), "adapter.safetensors cannot be read"),
    "weights of another name": (lambda f: (f / WEIGHTS_NAME).rename(f / "a.safetensors"), "cannot be read"),
    "half the weights": (lambda f: cut(f / WEIGHTS_NAME), "adapter.safetensors cannot be read"),
    "half the configuration": (lambda f: cut(f / CONFIG_NAME), "adapter_config.json cannot be read"),
    "a renamed tensor": (tensors(lambda t: t.update(alpha=t.pop("logits"))), "is not the one"),
    "another format": (config(format_version=7), "format version 7 is not 1"),
    "a text for a number": (config(n_prompts="3"), "n_prompts is '3'"),
    "nothing for the template": (config(template=None), "Cannot read a prompt template"),
    "a template without its fields": (config(template={}), "its template has no 'answer_cue'"),
    "not a number in the weights": (tensors(lambda t: t["embedding"].fill_(float("nan"))), "is not the one"),
}


@pytest.fixture
def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_folders: dict[str, Path],
    saved: Path,
    llama: Model,
) -> Run:
    """Run a command in a folder with the files above; the tiny model is not loaded anew."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    shutil.copytree(saved, tmp_path / "adapter")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SITE_INTERP_DATA", raising=False)
    monkeypatch.setenv("SITE_INTERP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("site_interp.figure_files._make_pictures", no_pictures)
    real = site_interp.model.load_model

    def load(name: str, *, device: str, dtype: str | None, **more: Any) -> Model:
        plain = (name, device, dtype) == (str(tiny_folders["llama"]), "auto", None)
        return llama if plain else real(name, device=device, dtype=dtype, **more)

    monkeypatch.setattr(site_interp.model, "load_model", load)
    places = {"TINY": tiny_folders["llama"], "GPT2": tiny_folders["gpt2"]}

    def command(words: str) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main([str(places.get(word, word)) for word in words.split()])
        shown = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return Result(leaving.value.code, shown.out, shown.err)

    return command


def contents(folder: Path) -> dict[str, bytes]:
    """Every file with what is in it; locks and the cache's folder aside."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def assert_refused(done: Result, said: str) -> None:
    """One plain sentence or two on the last line of stderr, after nothing but plan and progress."""
    *before, last = done.err.splitlines()
    assert done.code == 2, done.err
    assert last.startswith("site-interp: ")
    assert said in last
    assert "Traceback" not in done.err
    assert "\n" not in last
    assert all(line.startswith(("Plan: ", "[ ", "[1")) for line in before), before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_gives_exit_code_2_and_one_plain_line_and_changes_no_file(
    run: Run, tmp_path: Path, name: str
) -> None:
    before = contents(tmp_path)
    command, said = COMMANDS[name]
    assert_refused(run(command), said)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("verb", ["generate words.jsonl", "tasks check words.jsonl", "doctor"])
def test_a_model_whose_file_is_cut_off_is_a_mistake(
    run: Run, tmp_path: Path, tiny_folders: dict[str, Path], verb: str, name: str
) -> None:
    if (verb, name) == ("tasks check words.jsonl", "model.safetensors"):
        pytest.skip("tasks check reads no weights")
    shutil.copytree(tiny_folders["llama"], tmp_path / "cut")
    whole = (tmp_path / "cut" / name).read_bytes()
    (tmp_path / "cut" / name).write_bytes(whole[: len(whole) // 2])
    done = run(f"{verb} --model cut")
    assert done.code == 2, done.err
    *_, last = done.err.splitlines()
    assert last.startswith("site-interp: Cannot load the model 'cut': its files are damaged or incomplete (")
    assert last.endswith("Copy or fetch it again.")


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("verb", ["eval adapter", "generate words.jsonl --adapter adapter"])
def test_a_damaged_adapter_is_a_mistake_of_every_verb_that_takes_one(
    run: Run, tmp_path: Path, verb: str, name: str
) -> None:
    spoil, said = ADAPTERS[name]
    spoil(tmp_path / "adapter")
    before = contents(tmp_path)
    done = run(verb)
    assert_refused(done, said)
    assert "Cannot load an adapter from adapter: " in done.err
    assert contents(tmp_path) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none_is_a_mistake(run: Run, tmp_path: Path) -> None:
    assert_refused(run("run --task words.jsonl --device cuda --model TINY --out new"), "has no CUDA. Use 'cpu'")
    assert not (tmp_path / "new").exists()


def test_a_bundled_model_offline_and_not_cached_is_a_mistake(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    done = run("run --task words.jsonl --out new")
    assert (done.code, done.out) == (2, "")
    assert re.search(r"Check the network|offline", done.err.splitlines()[-1])
    assert "Traceback" not in done.err
    assert not (tmp_path / "new").exists()


def test_an_interrupt_gives_exit_code_130_and_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("site_interp.baselines.SITE.embed", interrupted)
    monkeypatch.setattr("site_interp.evaluation.evaluate_fitted", interrupted)
    monkeypatch.setattr("site_interp.generation.generate", interrupted)
    for command in (f"fit --task words.jsonl --out new {QUICK}", "eval adapter", "generate words.jsonl --model TINY"):
        done = run(command)
        assert done.code == 130
        assert done.err.splitlines()[-1].startswith("site-interp: interrupted")
        assert "Traceback" not in done.err


def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Every write after the first so many fails, as on a full disk."""
    count, real = [0], files.os.fsync

    def fsync(descriptor: int) -> None:
        count[0] += 1
        if count[0] > after:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)


@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_a_full_disk_keeps_what_was_recorded_and_leaves_no_half(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    command = f"run --task words.jsonl --n-test 2 --out new {QUICK}"
    with monkeypatch.context() as patch:
        full_disk(patch, after)
        assert_refused(run(command), "No space left on device")
    assert not list(tmp_path.rglob("*.tmp"))
    kept = read_results(tmp_path / "new") if (tmp_path / "new" / "results.jsonl").exists() else []
    done = run(command)
    assert done.code == 0
    assert f"{len({record.unit_hash for record in kept})} finished before" in done.err
    assert read_results(tmp_path / "new")[: len(kept)] == kept


@pytest.mark.parametrize("command", ["tasks list", "tasks list --json", "tasks show-prompt antonym"])
def test_a_full_device_behind_stdout_is_a_mistake(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "site_interp", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "site-interp: Cannot write the output: No space left on device. Free the place.\n"


def test_a_full_disk_keeps_the_adapter_that_was_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"fit --task antonym --out adapter {QUICK}"
    before = contents(tmp_path / "adapter")
    for after in range(3):
        with monkeypatch.context() as patch:
            full_disk(patch, after)
            assert_refused(run(command), "No space left on device")
        assert contents(tmp_path / "adapter") == before
    assert run(command).code == 0
    assert contents(tmp_path / "adapter") != before


def test_one_bad_task_leaves_the_other_fits_alone(run: Run, tmp_path: Path, llama: Model) -> None:
    command = f"fit --task words.jsonl --task few.jsonl --task long.jsonl --out new {QUICK}"
    done = run(command.replace("--n-shots 2", "--n-shots 4"))
    assert done.code == 1
    few, long = done.err.splitlines()[-2:]
    assert few.startswith("file/few site(")
    assert "failed: Cannot draw an embedding prompt of 4 shots" in few
    assert "file/long" in long
    assert "longer than the context" in long
    assert [path.name for path in (tmp_path / "new").glob("[!.]*")] == ["file-words__seed-0"]
    assert Adapter.from_pretrained(tmp_path / "new" / "file-words__seed-0", llama).embedding.task == "file/words"
    assert "file/words" in done.out


def test_an_error_in_the_common_fit_fails_its_task_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from site_interp.baselines import SITE

    real = SITE.fit_prepared

    def select(method: Any, model: Any, runs: Any, *more: Any) -> Any:
        if any(one.labelled.task == "bundled/antonym" for one in runs):
            raise ZeroDivisionError("by chance")
        return real(method, model, runs, *more)

    monkeypatch.setattr(SITE, "fit_prepared", select)
    done = run(f"fit --task words.jsonl --task antonym --out new --json {QUICK}")
    assert done.code == 1
    assert [row["task"] for row in json.loads(done.out)] == ["file/words"]
    assert done.err.splitlines()[-1].endswith("failed: by chance")
    assert "ZeroDivisionError" in (tmp_path / "new" / "errors.log").read_text()


def test_fit_continues_where_it_was_stopped(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"fit --task words.jsonl --task antonym --out new {QUICK}"
    assert run(command).code == 0
    shutil.rmtree(tmp_path / "new" / "bundled-antonym__seed-0")
    before = contents(tmp_path / "new")
    done = run(command)
    assert done.code == 0
    assert "file/words" in done.out
    assert "file/words site" not in done.err, "what is there was fitted again"
    assert before.items() <= contents(tmp_path / "new").items()
    assert len(list((tmp_path / "new").glob("[!.]*"))) == 2


MARKUP = "[red]x[/red][/] :smile: [link=a]"


def test_signs_of_markup_in_names_and_texts_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    name = "[red]x[-red][] :smile:".replace(" ", "_")
    (tmp_path / f"{name}.jsonl").write_bytes(rows(*((f"{text} {MARKUP}", f"{a} [/]") for text, a in PAIRS)))
    shown = run(f"tasks show {name}.jsonl")
    assert shown.code == 0
    assert f"file/{name}" in shown.out
    assert MARKUP in shown.out
    assert "' [/]'" in shown.out or "[/]'" in shown.out
    assert MARKUP in run(f"tasks show-prompt {name}.jsonl").out
    for command, where in (
        (f"run --task {name}.jsonl --n-test 2 --method site --out out[/] {QUICK}", "out[/]"),
        (f"fit --task {name}.jsonl --out fit[/] {QUICK}", "fit[/]"),
        (f"eval fit[/] --task {name}.jsonl --n-test 2", ""),
    ):
        done = run(command)
        assert done.code == 0, done.err
        assert f"file/{name}" in done.out
        assert f"file/{name}" in done.err
        assert where in done.out
    assert_refused(run(f"run --task {name}.csv --model TINY"), f"{name}.csv")


# from Python


def test_activations_that_are_not_finite_name_the_prompt(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    real = embedding.last_values

    def spoilt(prefixes: Any, points: Any) -> torch.Tensor:
        z = real(prefixes, points)
        z[prefixes.rows == 2, 1, 0, 3] = float("nan")
        return z

    monkeypatch.setattr(embedding, "last_values", spoilt)
    prompts = [f"Q: {' '.join(WORDS[place : place + 20])}\nA:" for place in range(4)]
    said = re.escape(f"head outputs of prompt 2, {prompts[2][:40]!r}: they are not finite in float32")
    with pytest.raises(NotFiniteError, match=said):
        embed_prompts(llama, prompts)
    with pytest.raises(NotFiniteError, match="head outputs of prompt 2, 'Q: "):
        embed_task(llama, word_task(), n_prompts=3, n_shots=2)


def endless(adapter: Adapter) -> Adapter:
    """An adapter whose finite values overflow in the model."""
    return replace(adapter, embedding=replace(adapter.embedding, mean=torch.full_like(adapter.embedding.mean, 3e38)))


def test_an_adapter_that_overflows_is_an_error_of_every_use_and_no_score(
    run: Run, llama: Model, saved: Path, tmp_path: Path
) -> None:
    adapter = endless(Adapter.from_pretrained(saved))
    with pytest.raises(NotFiniteError, match=r"logits of prompt 0, 'Q: aa\\nA:'"):
        generate(llama, ["aa"], adapter)
    with pytest.raises(NotFiniteError, match="logits of prompt"):
        evaluate(llama, load_task("antonym"), [adapter], n_test=2)
    adapter.save_pretrained(tmp_path / "adapter")
    for command in ("eval adapter --n-test 2", "generate few.jsonl --adapter adapter"):
        assert_refused(run(command), "they are not finite in float32")


def test_logits_that_are_lost_while_decoding_are_an_error(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    (prefixes,) = encode_prompts(llama, ["Q: aa\nA:", "Q: bb\nA:"])
    real, calls = Model.forward, [0]

    def forward(*args: Any, **kwargs: Any) -> Any:
        logits, cache = real(*args, **kwargs)
        calls[0] += 1
        if calls[0] > 1:
            logits[-1, -1, 5] = float("nan")
        return logits, cache

    monkeypatch.setattr(Model, "forward", forward)
    with pytest.raises(NotFiniteError, match="the answer of row 1"):
        injected_text(prefixes, stop="no such text")


def test_a_unit_whose_numbers_are_lost_is_failed_and_not_inapplicable(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "last_values", lambda part, _: torch.full((len(part), 3, 4, 8), float("nan")))
    units = plan_units(llama, [word_task()], [ZeroShot(), quick_site()], (0,), 2)
    outcome = run_units(llama, units, tmp_path)
    assert (outcome.done, outcome.failed, outcome.inapplicable) == (1, 1, 0)
    assert "head outputs of prompt 0" in outcome.reasons[0]


@pytest.mark.parametrize("method", [quick_site(), TaskVector(n_shots=2)], ids=lambda method: method.name)
def test_a_run_does_not_replace_what_was_fitted_on_another_model(
    llama: Model, tiny_folders: dict[str, Path], tmp_path: Path, method: Method
) -> None:
    run_units(llama, plan_units(llama, [word_task()], [method], (0,), 2), tmp_path)
    before = contents(tmp_path)
    other = site_interp.model.load_model(tiny_folders["gpt2"])
    with pytest.raises(UserError, match="made with another model"):
        run_units(other, plan_units(other, [word_task()], [method], (0,), 2), tmp_path)
    assert contents(tmp_path) == before


def inject_twice(llama: Model) -> None:
    adapter = fitted_adapter(llama, word_task())
    with inject(llama, adapter), inject(llama, adapter):
        pass


def an_embedding(llama: Model) -> Any:
    return embed_task(llama, word_task(), n_prompts=2, n_shots=2)


CALLS: dict[str, tuple[Callable[[Model], object], str]] = {
    "no prompts": (lambda m: embed_task(m, word_task(), n_prompts=0), "Cannot draw 0 embedding prompts"),
    "negative shots": (lambda m: embed_task(m, word_task(), n_shots=-1), "-1 demonstrations"),
    "too few examples": (lambda m: embed_task(m, word_task(), n_shots=24), "found 24. Lower n_shots"),
    "a long prompt": (lambda m: embed_prompts(m, ["aa " * 300]), "longer than the context"),
    "no test examples": (lambda m: evaluate(m, word_task(), [ZeroShot()], n_test=0), "Give n_test of 1 or more"),
    "negative test examples": (lambda m: evaluate(m, word_task(), [ZeroShot()], n_test=-3), "on -3 test examples"),
    "a seed twice": (lambda m: evaluate(m, word_task(), [ZeroShot()], seeds=(0, 0)), "each once"),
    "a negative seed": (lambda m: evaluate(m, word_task(), [ZeroShot()], seeds=(-1,)), "of 0 or more"),
    "no seeds": (lambda m: plan_units(m, [word_task()], [ZeroShot()], (), 2), "at least one"),
    "no new tokens": (lambda m: generate(m, ["aa"], max_new_tokens=0), "max_new_tokens of 1 or more"),
    "another template": (
        lambda m: generate(m, ["aa"], fitted_adapter(m, word_task()), template=CHAT),
        "which was fitted with 'qa'",
    ),
    "an embedding with nan": (
        lambda m: replace(an_embedding(m), mean=torch.full((3, 4, 8), float("nan"))),
        "a value of its embedding is not finite at L0H0",
    ),
    "a spread with inf": (
        lambda m: replace(an_embedding(m), std=torch.full((3, 4, 8), float("inf"))),
        "a value of its spread is not finite at L0H0",
    ),
    "logits with inf": (lambda m: HeadSelection(torch.tensor([[0.0, float("inf")]])), "not finite at L0H1"),
    "too many heads": (lambda m: HeadSelection(torch.zeros(3, 4)).top(13), "Cannot choose 13 heads of 12"),
    "a target with nan": (
        lambda m: injected_text(
            encode_prompts(m, ["Q: aa\nA:"])[0],
            Intervention(torch.full((1, 3, 4, 8), float("nan")), torch.ones(1, 3, 4)),
        ),
        "logits of prompt 0, 'Q: aa",
    ),
    "a metric without scores": (
        lambda m: evaluate(m, word_task(), [Echo()], n_test=1).rows[0].interval("answer_log_prob"),
        "Cannot give the 'answer_log_prob' of echo: it has prefix_match, strict_match, first_token.",
    ),
    "a text for the inputs": (lambda m: generate(m, "aa bb"), "give a list of texts"),
    "a text for the names": (
        lambda m: generate(m, ["aa"], {"x": fitted_adapter(m, word_task())}, adapter_names="x"),
        "give a list of names",
    ),
    "negative demonstrations": (lambda m: ICL(-1), "Cannot ask with -1 demonstrations"),
    "a negative seed of an embedding": (lambda m: embed_task(m, word_task(), seed=-1), "with the seed -1"),
    "no methods": (lambda m: evaluate(m, word_task(), []), "give a list of methods"),
    "no name of a task": (lambda m: load_task(""), "Cannot load a task without a name"),
    "an injection inside another": (lambda m: inject_twice(m), "Leave that block first"),
    "an unknown template": (lambda m: load_template("chatt"), "Did you mean chat"),
    "a template that ends nowhere": (lambda m: Template(stop=""), "stop text is empty"),
    "no answer cue": (lambda m: Template(answer_cue=""), "answer cue is ''"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_in_python_is_a_user_error_of_one_line(llama: Model, name: str) -> None:
    call, said = CALLS[name]
    with pytest.raises(UserError, match=re.escape(said)) as error:
        call(llama)
    assert "\n" not in str(error.value)
