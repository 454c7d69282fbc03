"""Adapters come back bit for bit, and nothing damaged, foreign or executable is ever loaded."""

import hashlib
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save
from tiny_models import save_tiny_model
from upper_fixtures import fitted_adapter, word_task

from site_interp import files
from site_interp.adapter import CONFIG_NAME, WEIGHTS_NAME, Adapter
from site_interp.errors import UserError
from site_interp.model import Model, load_model
from site_interp.prompts import Template
from site_interp.selection import HeadSelection


@pytest.fixture(scope="module")
def adapter(llama: Model) -> Adapter:
    return fitted_adapter(llama, word_task(split_seed=3), seed=5, template=Template("own", "I ", "\nA:", " ", "\n\n"))


@pytest.fixture
def folder(adapter: Adapter, tmp_path: Path) -> Path:
    adapter.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def fields_of(adapter: Adapter) -> dict[str, Any]:
    """Every field but the three tensors."""
    parts = {"embedding": adapter.embedding, "selection": adapter.selection}
    return {
        f"{part}.{name}": value
        for part, whole in parts.items()
        for name, value in vars(whole).items()
        if not isinstance(value, torch.Tensor)
    }


def tensors_of(adapter: Adapter) -> list[torch.Tensor]:
    return [adapter.embedding.mean, adapter.embedding.std, adapter.selection.logits]


def same(first: Adapter, second: Adapter) -> bool:
    tensors = zip(tensors_of(first), tensors_of(second), strict=True)
    return fields_of(first) == fields_of(second) and all(torch.equal(a, b) for a, b in tensors)


def test_an_adapter_comes_back_bit_for_bit_with_every_field(llama: Model, adapter: Adapter, folder: Path) -> None:
    assert float(adapter.embedding.std.abs().max()) > 0
    assert float(adapter.selection.logits.abs().max()) > 0
    assert same(Adapter.from_pretrained(folder, llama), adapter)


def test_a_selection_without_a_fit_comes_back_as_well(adapter: Adapter, tmp_path: Path) -> None:
    made = Adapter(adapter.embedding, HeadSelection(torch.linspace(-20, 20, 12).reshape(3, 4)))
    made.save(tmp_path)
    assert same(Adapter.from_pretrained(tmp_path), made)


def test_the_folder_holds_two_files_and_three_fp32_tensors(adapter: Adapter, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["adapter.safetensors", "adapter_config.json"]
    tensors = load_file(folder / WEIGHTS_NAME)
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()} == {
        "embedding": (torch.float32, (3, 4, 8)),
        "embedding_std": (torch.float32, (3, 4, 8)),
        "logits": (torch.float32, (3, 4)),
    }
    assert torch.equal(tensors["embedding"], adapter.embedding.mean)
    assert torch.equal(tensors["embedding_std"], adapter.embedding.std)
    assert torch.equal(torch.sigmoid(tensors["logits"]), adapter.selection.alpha)


def test_the_configuration_says_everything_the_contract_asks_for(llama: Model, adapter: Adapter, folder: Path) -> None:
    config = json.loads((folder / CONFIG_NAME).read_text())
    trace = adapter.selection.trace
    assert trace is not None
    expected = {
        "format_version": 1,
        "method": "site",
        "model": llama.name,
        "revision": None,
        "dtype": "float32",
        "fingerprint": json.loads(json.dumps(llama.fingerprint.to_dict())),
        "task": "file/words",
        "split_hash": word_task(split_seed=3).split_hash,
        "split_seed": 3,
        "template": adapter.template.to_dict(),
        "tokenisation": {"ids": "AutoTokenizer(text)", "tokenizer": llama.fingerprint.tokenizer},
        "n_prompts": 3,
        "n_shots": 2,
        "embedding_seed": 5,
        "embedding_labels": adapter.embedding.n_labels,
        "labels": adapter.n_labels,
        "seed": 5,
        "preset": None,
        "settings": {
            "n_steps": 6, "batch_size": 2, "lr": 0.2, "validate_every": 3, "n_valid": 4, "checkpoint": "best"
        },
        "steps": 6,
        "chosen_step": trace.chosen_step,
        "metrics": {"valid_loss": min(trace.valid_loss)},
        "weights_sha256": hashlib.sha256((folder / WEIGHTS_NAME).read_bytes()).hexdigest(),
    }  # fmt: skip
    assert {name: config[name] for name in expected} == expected
    assert set(config) - set(expected) == {"trace", "versions"}
    assert config["trace"]["train_loss"] == list(trace.train_loss)
    assert set(config["versions"]) == {"site-interp", "torch", "transformer-lens", "transformers"}


def test_notes_are_kept_and_never_replace_a_field(adapter: Adapter, tmp_path: Path) -> None:
    adapter.save_pretrained(tmp_path, preset="paper", unit_hash="u", task="file/other")
    loaded, config = Adapter.from_pretrained_with_notes(tmp_path)
    assert (config["preset"], config["unit_hash"]) == ("paper", "u")
    assert loaded.embedding.task == config["task"] == "file/words"


@pytest.mark.parametrize(
    ("family", "said"),
    [("gpt2", "type llama against gpt2"), ("gemma3", "d_head 8 against 16; type llama against gemma3")],
)
def test_another_architecture_is_refused_naming_the_fields_that_differ(
    folder: Path, tiny_folders: dict[str, Path], family: str, said: str
) -> None:
    with pytest.raises(UserError, match=said) as error:
        Adapter.from_pretrained(folder, load_model(tiny_folders[family]))
    assert "n_layers" not in str(error.value)


def test_other_weights_of_the_same_shape_are_refused(folder: Path, tmp_path: Path) -> None:
    other = load_model(save_tiny_model(tmp_path / "other", "llama", seed=1))
    with pytest.raises(UserError, match="other weights") as error:
        Adapter.from_pretrained(folder, other)
    assert "against" not in str(error.value)


def rewrite_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Other tensors under a hash that fits, as a faulty writer would leave them."""
    tensors = load_file(folder / WEIGHTS_NAME)
    change(tensors)
    weights = save(tensors)
    (folder / WEIGHTS_NAME).write_bytes(weights)
    rewrite_config(folder, lambda config: config.update(weights_sha256=hashlib.sha256(weights).hexdigest()))


def rewrite_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / CONFIG_NAME).read_text())
    change(config)
    (folder / CONFIG_NAME).write_text(json.dumps(config))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def swap_weights(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    (folder / WEIGHTS_NAME).write_bytes(save({**tensors, "logits": tensors["logits"] + 1}))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "there is no adapter_config.json"),
    "no configuration": (lambda f: (f / CONFIG_NAME).unlink(), "there is no adapter_config.json"),
    "no weights": (lambda f: (f / WEIGHTS_NAME).unlink(), "adapter.safetensors cannot be read"),
    "renamed weights": (lambda f: (f / WEIGHTS_NAME).rename(f / "model.safetensors"), "safetensors cannot be read"),
    "half the weights": (lambda f: cut(f / WEIGHTS_NAME), "adapter.safetensors cannot be read"),
    "empty weights": (lambda f: (f / WEIGHTS_NAME).write_bytes(b""), "adapter.safetensors cannot be read"),
    "half the configuration": (lambda f: cut(f / CONFIG_NAME), "adapter_config.json cannot be read"),
    "configuration in another encoding": (
        lambda f: (f / CONFIG_NAME).write_bytes(b"\xff\xfe{}"),
        "adapter_config.json cannot be read",
    ),
    "a list for a configuration": (lambda f: (f / CONFIG_NAME).write_text("[]"), "format version None is not 1"),
    "another format": (lambda f: rewrite_config(f, lambda c: c.update(format_version=2)), "format version 2 is not 1"),
    "weights of another adapter": (swap_weights, "is not the one adapter_config.json was written with"),
    "a field is gone": (lambda f: rewrite_config(f, lambda c: c.pop("task")), "lacks or spoils a field .'task'"),
    "a text for a count": (
        lambda f: rewrite_config(f, lambda c: c.update(n_shots="2")),
        "lacks or spoils a field .n_shots is '2'",
    ),
    "a number for a text": (lambda f: rewrite_config(f, lambda c: c.update(model=1)), "model is 1"),
    "a number for a revision": (lambda f: rewrite_config(f, lambda c: c.update(revision=1)), "revision is 1"),
    "a text for a loss": (
        lambda f: rewrite_config(f, lambda c: c["trace"].update(train_loss="abc")),
        "train_loss is no list of numbers",
    ),
    "a step that was never validated": (
        lambda f: rewrite_config(f, lambda c: c["trace"].update(chosen_step=99)),
        "chosen_step is 99",
    ),
    "settings out of range": (
        lambda f: rewrite_config(f, lambda c: c["settings"].update(lr=-1.0)),
        "Give a finite number above 0",
    ),
    "a learning rate that is no number": (
        lambda f: rewrite_config(f, lambda c: c["settings"].update(lr=float("nan"))),
        "adapter_config.json cannot be read .NaN is no number",
    ),
    "a probe of texts": (
        lambda f: rewrite_config(f, lambda c: c["fingerprint"].update(probe=["a"])),
        "lacks or spoils a field .*probe",
    ),
    "an architecture that is a list": (
        lambda f: rewrite_config(f, lambda c: c["fingerprint"].update(architecture=[1])),
        "lacks or spoils a field .*architecture",
    ),
    "an unknown field of the template": (
        lambda f: rewrite_config(f, lambda c: c["template"].update(more="x")),
        "Cannot read a prompt template: it has .'more'",
    ),
    "half a trace": (lambda f: rewrite_config(f, lambda c: c["trace"].pop("valid_loss")), "lacks or spoils a field"),
    "unknown settings": (lambda f: rewrite_config(f, lambda c: c["settings"].update(a=1)), "lacks or spoils a field"),
    "a fingerprint without a probe": (
        lambda f: rewrite_config(f, lambda c: c["fingerprint"].pop("probe")),
        "lacks or spoils a field .'probe'",
    ),
    "not a number in the embedding": (
        lambda f: rewrite_weights(f, lambda t: t["embedding"][1, 2, 0].fill_(float("nan"))),
        "a value of its embedding is not finite at L1H2",
    ),
    "not a number in the spread": (
        lambda f: rewrite_weights(f, lambda t: t["embedding_std"][0, 3, 0].fill_(float("nan"))),
        "a value of its spread is not finite at L0H3",
    ),
    "infinite logits": (
        lambda f: rewrite_weights(f, lambda t: t["logits"][2, 1].fill_(float("inf"))),
        "a value of its logits is not finite at L2H1",
    ),
    "logits of other heads": (
        lambda f: rewrite_weights(f, lambda t: t.update(logits=torch.zeros(3, 5))),
        r"'logits': \(3, 5\)",
    ),
    "a spread of another width": (
        lambda f: rewrite_weights(f, lambda t: t.update(embedding_std=torch.zeros(3, 4, 9))),
        r"'embedding_std': \(3, 4, 9\)",
    ),
    "a flat embedding": (
        lambda f: rewrite_weights(f, lambda t: t.update(embedding=torch.zeros(96))),
        r"'embedding': \(96,\)",
    ),
    "a tensor is gone": (lambda f: rewrite_weights(f, lambda t: t.pop("logits")), "holds .*, not embedding and"),
    "a tensor too many": (lambda f: rewrite_weights(f, lambda t: t.update(more=torch.zeros(1))), r"'more': \(1,\)"),
    "half precision": (
        lambda f: rewrite_weights(f, lambda t: t.update(logits=t["logits"].half())),
        "holds torch.float16, and must be float32",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line_that_says_what_is_wrong(folder: Path, damage: str) -> None:
    spoil, said = DAMAGES[damage]
    spoil(folder)
    with pytest.raises(UserError, match=said) as error:
        Adapter.from_pretrained(folder)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"Cannot load an adapter from {folder}: ")


def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        Adapter.from_pretrained(folder / CONFIG_NAME)


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.place,)


def test_a_pickle_is_refused_and_never_run(folder: Path, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    (folder / WEIGHTS_NAME).write_bytes(bomb)
    rewrite_config(folder, lambda config: config.update(weights_sha256=hashlib.sha256(bomb).hexdigest()))
    with pytest.raises(UserError, match="cannot be read"):
        Adapter.from_pretrained(folder)
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)
    assert (tmp_path / "exploded").exists(), "the bomb of this test is a dud"


def test_saving_over_an_adapter_replaces_it(adapter: Adapter, folder: Path) -> None:
    another(adapter).save_pretrained(folder)
    assert same(Adapter.from_pretrained(folder), another(adapter))
    assert len(list(folder.iterdir())) == 2


def another(adapter: Adapter) -> Adapter:
    return replace(adapter, selection=replace(adapter.selection, logits=adapter.selection.logits + 1, seed=9))


STOPS = {  # each step of a writing that can go wrong, and where the n-th of them lies
    "os.replace": [1, 2, 3],
    "os.fsync": [1, 2, 3],
}


@pytest.mark.parametrize(("step", "n"), [(step, n) for step, places in STOPS.items() for n in places])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_adapter_as_it_was(
    adapter: Adapter, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, n: int, error: BaseException
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    count, real = [0], getattr(files.os, step.removeprefix("os."))

    def failing(*args: Any) -> None:
        count[0] += 1
        if count[0] == n:
            raise error
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(step, failing)
        with pytest.raises(UserError if isinstance(error, OSError) else KeyboardInterrupt):
            another(adapter).save_pretrained(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert same(Adapter.from_pretrained(folder), adapter)


@pytest.mark.parametrize(("step", "n"), [(step, n) for step, places in STOPS.items() for n in places])
def test_a_process_that_dies_while_saving_leaves_a_whole_adapter(
    adapter: Adapter, folder: Path, step: str, n: int
) -> None:
    child = os.fork()
    if child == 0:
        count, real = [0], getattr(os, step.removeprefix("os."))

        def dying(*args: Any) -> None:
            count[0] += 1
            if count[0] == n:
                os._exit(9)
            real(*args)

        setattr(os, step.removeprefix("os."), dying)
        another(adapter).save_pretrained(folder)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert same(Adapter.from_pretrained(folder), adapter)
    third = replace(adapter, selection=replace(adapter.selection, seed=11))
    third.save_pretrained(folder)
    assert same(Adapter.from_pretrained(folder), third)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".adapter.safetensors.kept")]


def test_a_first_write_that_fails_leaves_nothing(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("json.dumps", lambda *_, **__: "\ud800")  # cannot be encoded: fails between the two files
    with pytest.raises(UnicodeEncodeError):
        adapter.save_pretrained(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_note_that_is_no_json_is_refused_before_anything_is_written(adapter: Adapter, folder: Path) -> None:
    for note in (object(), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            another(adapter).save_pretrained(folder, note=note)
    assert same(Adapter.from_pretrained(folder), adapter)


def test_an_adapter_can_be_read_all_the_while_it_is_replaced(adapter: Adapter, folder: Path) -> None:
    writing = [True]

    def write() -> None:
        for turn in range(20):
            (adapter if turn % 2 else another(adapter)).save_pretrained(folder)
        writing[0] = False

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while writing[0]:
        seen.append(Adapter.from_pretrained(folder).selection.seed)
    writer.join()
    assert set(seen) <= {5, 9}


def test_a_place_that_cannot_be_written_is_a_plain_error(adapter: Adapter, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write to"):
        adapter.save_pretrained(tmp_path / "file" / "folder")


def test_a_configuration_of_another_program_is_never_replaced(adapter: Adapter, tmp_path: Path) -> None:
    theirs = json.dumps({"peft_type": "LORA", "r": 8})
    (tmp_path / CONFIG_NAME).write_text(theirs)
    with pytest.raises(UserError, match=r"its adapter_config\.json is that of another program"):
        adapter.save_pretrained(tmp_path)
    assert (tmp_path / CONFIG_NAME).read_text() == theirs
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG_NAME]


def test_two_writers_of_one_folder_leave_one_whole_adapter(adapter: Adapter, folder: Path) -> None:
    """Each starts while the other is between its two files."""
    both = (adapter, another(adapter))
    for _ in range(20):
        writers = [threading.Thread(target=one.save_pretrained, args=(folder,)) for one in both]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        found = Adapter.from_pretrained(folder)
        assert same(found, both[0]) or same(found, both[1])
        assert sorted(path.name for path in folder.iterdir()) == [WEIGHTS_NAME, CONFIG_NAME]


def test_what_a_killed_writer_left_is_removed_by_the_next(adapter: Adapter, folder: Path) -> None:
    (folder / f".{WEIGHTS_NAME}.99999.tmp").write_bytes(b"half")
    (folder / f".{CONFIG_NAME}.99999.tmp").write_bytes(b"half")
    adapter.save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == [WEIGHTS_NAME, CONFIG_NAME]


def test_parts_of_different_models_make_no_adapter(adapter: Adapter) -> None:
    with pytest.raises(UserError, match=r"embedding of \(3, 4\) layers x heads and a selection of \(3, 5\)"):
        Adapter(adapter.embedding, HeadSelection(torch.zeros(3, 5)))


def test_an_adapter_asks_zero_shot_and_injects_its_own_parts(adapter: Adapter) -> None:
    assert adapter.prompts(["aa", "ab"]) == ("I aa\nA:", "I ab\nA:")
    intervention = adapter.intervention()
    assert torch.equal(intervention.target[0], adapter.embedding.mean)
    assert torch.equal(intervention.alpha[0], torch.sigmoid(adapter.selection.logits))
    assert adapter.n_parameters == 12
