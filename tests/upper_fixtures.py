"""Small tasks and adapters, what a model must look like afterwards, and the command line in a process of its own."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from tiny_models import WORDS

from site_interp.adapter import Adapter
from site_interp.baselines import SITE
from site_interp.model import Model
from site_interp.selection import FitSettings
from site_interp.tasks import Example, Labelled, Task

QUICK = FitSettings(n_steps=6, batch_size=2, validate_every=3, n_valid=4)
PATIENCE = 90  # seconds to wait for another process, on a machine that is busy


def word_task(name: str = "file/words", *, n_train: int = 24, n_valid: int = 6, n_test: int = 8, **fields: Any) -> Task:
    """Inputs of one to four words, answered by two words each; other names give other examples."""
    chooser = random.Random(name)
    texts: dict[str, None] = {}
    while len(texts) < n_train + n_valid + n_test:
        texts[" ".join(chooser.choices(WORDS, k=chooser.randint(1, 4)))] = None
    rows = [Example(text, (" ".join(chooser.choices(WORDS, k=2)),)) for text in texts]
    return Task(
        name,
        tuple(rows[:n_train]),
        tuple(rows[n_train : n_train + n_valid]),
        tuple(rows[n_train + n_valid :]),
        **fields,
    )


def quick_site(**settings: Any) -> SITE:
    """SITE in a fraction of a second."""
    return SITE(**{"n_prompts": 3, "n_shots": 2, "fitting": QUICK, **settings})


def fitted_adapter(model: Model, task: Task, seed: int = 0, **settings: Any) -> Adapter:
    """An adapter from a short fit."""
    return quick_site(**settings).fit(model, Labelled(task), seed)


def model_state(model: Model) -> dict[str, Any]:
    """Everything a call must leave as it was: hooks, gradient flags, gradients, modes."""
    modules = dict(model.bridge.named_modules())
    inner = dict(model.inner.named_modules())
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return {
        "hooks": {
            (side, name): tuple(len(getattr(module, kind)) for kind in hooks)
            for side, named in (("bridge", modules), ("inner", inner))
            for name, module in named.items()
        },
        "own hooks": {name: len(m.fwd_hooks) for name, m in modules.items() if hasattr(m, "fwd_hooks")},
        "training": {name: module.training for name, module in inner.items()},
        "gradients": {
            name: (parameter.requires_grad, parameter.grad is None)
            for name, parameter in model.inner.named_parameters()
        },
        "grad enabled": torch.is_grad_enabled(),
    }


def no_pictures(*_: object) -> str:
    """In place of the browser that draws PNG files, which takes seconds."""
    return "left out by a test"


def start_command(arguments: Sequence[str], stderr: Path, folder: Path) -> BaseProcess:
    """Run the command line in another process, as `site-interp ARGUMENTS` in a folder; its stderr goes to a file.

    The process is forked from a server that has the imports behind it, so that a start takes a fraction of a second.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["transformer_lens.model_bridge", "transformers.models.llama.modeling_llama", "site_interp.experiments.summary"]
    )
    process = context.Process(target=_command, args=(list(arguments), str(stderr), str(folder)))
    process.start()
    return process


def _command(arguments: Sequence[str], stderr: str, folder: str) -> None:
    os.chdir(folder)
    os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started deaf to it
    written = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(written, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    torch.set_num_threads(1)
    from site_interp import figure_files
    from site_interp.cli import main

    figure_files._make_pictures = no_pictures
    main(arguments)


def wait_until(happened: Callable[[], bool], process: BaseProcess) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert process.is_alive(), "the process ended before what was waited for"
        assert time.monotonic() < end, "what was waited for never happened"
        time.sleep(0.002)
