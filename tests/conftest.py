"""Tiny random models, a small task in their words, and one real model; everything offline, and fixtures are read-only.

site_interp is imported inside the fixtures, so that the shape checks of pyproject.toml are in place before it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Oracle, load_oracle
from tiny_models import FAMILIES, THREE_FAMILIES, WORDS, save_tiny_model

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _one_thread(pytestconfig: pytest.Config) -> Iterator[None]:
    """Tiny tensors gain nothing from several threads; the tests of a real model keep them all."""
    before = torch.get_num_threads()
    if pytestconfig.option.markexpr not in ("slow", "gemma"):
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each family, as `save_pretrained` leaves it."""
    root = tmp_path_factory.mktemp("models")
    return {family: save_tiny_model(root / family, family) for family in FAMILIES}


@pytest.fixture(scope="session", params=THREE_FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Three families in turn; a test of what differs between architectures asks for all of them (`on_every_family`)."""
    return str(request.param)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where models are: the CPU, unless a test asks for others (`on_every_device`)."""
    return str(getattr(request, "param", "cpu"))


@pytest.fixture(scope="session")
def model(tiny_folders: dict[str, Path], family: str, device: str) -> Any:
    """The loaded model of each family in turn."""
    from site_interp.model import load_model

    return load_model(tiny_folders[family], device=device, dtype="float32")


@pytest.fixture(scope="session")
def oracle(tiny_folders: dict[str, Path], family: str, device: str) -> Oracle:
    """Plain transformers on the same folder as `model`."""
    return load_oracle(tiny_folders[family], device)


@pytest.fixture(scope="session")
def llama(tiny_folders: dict[str, Path]) -> Any:
    """One tiny model, where the family does not matter."""
    from site_interp.model import load_model

    return load_model(tiny_folders["llama"], device="cpu")


@pytest.fixture(scope="session")
def task() -> Any:
    """Inputs of one to nine words, each answered by the word after its first one."""
    from site_interp.tasks import Example, Task

    inputs = [" ".join(WORDS[(start + 7 * i) % 50] for i in range(1 + start % 9)) for start in range(40)]
    examples = tuple(Example(text, (WORDS[start + 1],)) for start, text in enumerate(inputs))
    return Task("file/next_word", examples[:24], examples[24:32], examples[32:])


@pytest.fixture(scope="session")
def real_model() -> Any:
    """SmolLM2-135M, for tests marked `slow`."""
    from site_interp.model import load_model

    return load_model("smollm2-135m", device="cpu")
