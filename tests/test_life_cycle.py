"""A model is left as it was by everything that uses it, is given back by `close`, and takes no memory with it."""

import gc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from upper_fixtures import QUICK, fitted_adapter, quick_site, word_task

from site_interp.adapter import Adapter
from site_interp.baselines import ICL, ZeroShot
from site_interp.embedding import embed_task
from site_interp.evaluation import evaluate
from site_interp.experiments.plan import plan_units
from site_interp.experiments.run import run_units
from site_interp.fitting import fit_selection
from site_interp.generation import generate, inject
from site_interp.model import Model, load_model

TASK = word_task(n_train=8, n_valid=4, n_test=4)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
HOOK_OPTIONS = ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
SLACK = 60  # MiB that four more loads of the real model may add to the 570 of the first; 11 were seen

Use = Callable[[Model, Adapter, Path], object]


def _inject(model: Model, adapter: Adapter, _: Path) -> None:
    ids = torch.tensor([model.token_ids("Q: aa\nA:")] * 2)
    with inject(model, {"one": adapter}, adapter_names=["one", "__base__"]):
        model.bridge.generate(ids, max_new_tokens=3, do_sample=False, stop_at_eos=False, verbose=False)


def _run(model: Model, _: Adapter, folder: Path) -> None:
    run_units(model, plan_units(model, [TASK], [ZeroShot(), quick_site()], [0], 2), folder)


USES: dict[str, Use] = {
    "embed_task": lambda model, adapter, _: embed_task(model, TASK, n_prompts=3, n_shots=2),
    "fit_selection": lambda model, adapter, _: fit_selection(model, TASK, adapter.embedding, settings=QUICK),
    "evaluate": lambda model, adapter, _: evaluate(model, TASK, [ZeroShot(), ICL(2), adapter]),
    "generate": lambda model, adapter, _: generate(model, ["aa", "bb bc"], adapter, max_new_tokens=4),
    "generate with several": lambda model, adapter, _: generate(
        model, ["aa", "bb"], {"one": adapter}, adapter_names=["one", "__base__"], max_new_tokens=4
    ),
    "inject": _inject,
    "run_units": _run,
}


def module_state(module: Any) -> dict[str, Any]:
    """Everything about one module that a use could leave behind: hooks themselves, not their number."""
    return {
        "kind": type(module),
        "training": module.training,
        "children": list(module._modules.items()),
        "hooks": {name: dict(getattr(module, name, None) or {}) for name in (*HOOKS, *HOOK_OPTIONS)},
        "own hooks": [
            [handle.hook for handle in getattr(module, name, [])] for name in ("fwd_hooks", "bwd_hooks")
        ],
    }  # fmt: skip


def state(model: Model) -> dict[str, Any]:
    """Everything a caller can see of a model and of torch."""
    texts = (model.tokenizer, model.bridge.tokenizer)
    modules = dict(enumerate([*model.bridge.modules(), *model.inner.modules()]))
    return {
        "modules": {place: (id(module), module_state(module)) for place, module in modules.items()},
        "flags": [(name, value.requires_grad) for name, value in model.inner.named_parameters()],
        "gradients": [name for name, value in model.inner.named_parameters() if value.grad is not None],
        "weights": [float(value.detach().double().sum()) for value in model.inner.parameters()],
        "tokenizers": [(one.padding_side, one.truncation_side, one.pad_token, one("aa").input_ids) for one in texts],
        "attention": model.inner.config._attn_implementation,
        "torch": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        "random": torch.get_rng_state().tolist(),
    }  # fmt: skip


class Counting:
    """A caller's own hook on the model, which also ends the work at a chosen forward."""

    def __init__(self) -> None:
        self.n, self.ends_at, self.ending = 0, 0, Exception()

    def __call__(self, *_: Any) -> None:
        self.n += 1
        if self.n == self.ends_at:
            raise self.ending

    def arm(self, ends_at: int, ending: BaseException) -> None:
        self.n, self.ends_at, self.ending = 0, ends_at, ending


@pytest.fixture(scope="module")
def used(tiny_folders: dict[str, Path]) -> tuple[Model, Counting, Adapter]:
    """A model with hooks of its caller, mixed gradient flags, and one module in training mode."""
    model = load_model(tiny_folders["llama"], device="cpu")
    adapter = fitted_adapter(model, TASK)
    counting = Counting()
    model.inner.model.layers[1].register_forward_hook(counting)
    model.inner.register_forward_pre_hook(lambda *_: None)
    model.bridge.add_hook("blocks.0.attn.hook_z", lambda z, hook: None)
    for place, parameter in enumerate(model.inner.parameters()):
        parameter.requires_grad_(place % 3 == 0)
    model.inner.model.layers[2].mlp.train()
    return model, counting, adapter


WITHOUT_GRADIENTS = ("embed_task", "fit_selection", "generate")  # also called in that mode


@pytest.mark.parametrize(
    ("name", "gradients"), [*((name, True) for name in USES), *((name, False) for name in WITHOUT_GRADIENTS)]
)
def test_a_model_is_as_before_after_success_an_exception_and_an_interrupt(
    used: tuple[Model, Counting, Adapter], name: str, gradients: bool, tmp_path: Path
) -> None:
    with torch.set_grad_enabled(gradients):
        check_left_as_before(used, name, tmp_path)


def check_left_as_before(used: tuple[Model, Counting, Adapter], name: str, tmp_path: Path) -> None:
    model, counting, adapter = used
    use, before = USES[name], state(model)
    counting.arm(0, Exception())
    use(model, adapter, tmp_path / "whole")
    n_forwards = counting.n
    assert n_forwards > 1, "the caller's hook did not fire"
    assert state(model) == before
    for ending in (KeyError("mine"), KeyboardInterrupt()):
        if name == "run_units" and isinstance(ending, Exception):
            continue  # an exception is recorded as the unit's failure; `test_run.py` has it
        for moment in {1, n_forwards // 2, n_forwards}:
            counting.arm(moment, ending)
            with pytest.raises(type(ending)):
                use(model, adapter, tmp_path / f"{moment}")
            assert counting.n == moment
            assert state(model) == before, f"{type(ending).__name__} in forward {moment} of {n_forwards}"
    counting.arm(0, Exception())


def test_work_goes_on_after_an_interrupt_with_the_same_results(used: tuple[Model, Counting, Adapter]) -> None:
    model, counting, adapter = used
    counting.arm(0, Exception())
    before = generate(model, ["aa", "bb"], adapter)
    counting.arm(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        generate(model, ["aa", "bb"], adapter)
    counting.arm(0, Exception())
    assert generate(model, ["aa", "bb"], adapter) == before


@pytest.mark.parametrize("place", [1, 2])
def test_an_interrupt_while_hooks_are_attached_leaves_none(
    used: tuple[Model, Counting, Adapter], monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    model, counting, adapter = used
    counting.arm(0, Exception())
    before = state(model)
    name = ("register_forward_hook", "hooks")[place - 1]
    target = type(model.inner) if place == 1 else type(model.bridge)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(model, ["aa"], adapter)
    assert state(model) == before


def test_hooks_whose_removal_is_interrupted_write_nothing_afterwards(
    tiny_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(tiny_folders["llama"], device="cpu")
    adapter, ids = fitted_adapter(model, TASK), torch.tensor([model.token_ids("Q: aa\nA:")])
    plain = generate(model, ["aa", "bb bc"])

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(model.bridge), "_remove_temporary_hook", interrupted)
        with pytest.raises(KeyboardInterrupt), inject(model, adapter):
            changed = model.bridge(ids)
    assert any(module.fwd_hooks for module in model.bridge.modules() if hasattr(module, "fwd_hooks"))
    assert not torch.equal(model.bridge(ids), changed)
    assert generate(model, ["aa", "bb bc"]) == plain


def test_an_interrupt_while_parameters_are_frozen_gives_their_flags_back(
    used: tuple[Model, Counting, Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _, _ = used
    before = state(model)
    real, done = torch.nn.Parameter.requires_grad_, list[int]()

    def interrupted(self: Any, flag: bool = True) -> Any:
        done.append(1)
        if len(done) == 3:
            raise KeyboardInterrupt
        return real(self, flag)

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Parameter, "requires_grad_", interrupted)
        with pytest.raises(KeyboardInterrupt), model.frozen():
            pytest.fail("nothing is frozen here")
    assert state(model) == before


# A caller's own model


def hugging_face_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    inner = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    inner.register_forward_hook(lambda *_: None)
    for place, parameter in enumerate(inner.parameters()):
        parameter.requires_grad_(place % 2 == 0)
    return inner


def given(inner: Any) -> dict[str, Any]:
    """A caller's model, with every module and its attributes themselves."""
    return {
        "modules": [(name, id(module), module_state(module)) for name, module in inner.named_modules()],
        "attributes": [sorted(vars(module)) for module in inner.modules()],
        "flags": [(name, id(value), value.requires_grad) for name, value in inner.named_parameters()],
        "buffers": [(name, id(value)) for name, value in inner.named_buffers()],
        "config": (inner.config.to_dict(), inner.config._attn_implementation),
    }


@pytest.mark.parametrize("ending", [None, KeyError("mine"), KeyboardInterrupt()], ids=["success", "error", "Ctrl-C"])
def test_a_hugging_face_model_is_given_back_whatever_ended_its_use(
    tiny_folders: dict[str, Path], family: str, ending: BaseException | None
) -> None:
    inner = hugging_face_model(tiny_folders[family])
    before = given(inner)
    counting = Counting()
    counting.arm(0 if ending is None else 3, ending or Exception())
    with nullcontext() if ending is None else pytest.raises(type(ending)), load_model(inner) as model:
        embedding = embed_task(model, TASK, n_prompts=3, n_shots=2)
        handle = inner.register_forward_hook(counting)
        inner.requires_grad_(True)
        fit_selection(model, TASK, embedding, settings=QUICK)
    handle.remove()
    assert counting.n >= 3
    assert given(inner) == before


def test_closing_twice_leaves_what_the_caller_did_in_between(tiny_folders: dict[str, Path]) -> None:
    inner = hugging_face_model(tiny_folders["llama"])
    before = given(inner)
    with load_model(inner) as model:
        model.close()
        assert given(inner) == before
        inner.eval().requires_grad_(False)
        changed = given(inner)
    assert given(inner) == changed != before


def test_a_callers_hook_still_works_and_can_be_removed_after_close(tiny_folders: dict[str, Path]) -> None:
    inner = hugging_face_model(tiny_folders["llama"])
    counting = Counting()
    handles = [module.register_forward_hook(counting) for module in (inner, inner.model.layers[0])]
    with load_model(inner) as model:
        generate(model, ["aa"], max_new_tokens=1)
    counting.arm(0, Exception())
    inner(torch.tensor([[4, 8]]))
    assert counting.n == 2
    for handle in handles:
        handle.remove()
    inner(torch.tensor([[4, 8]]))
    assert counting.n == 2


def test_repeated_uses_of_a_bridge_add_no_hooks(tiny_folders: dict[str, Path]) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(str(tiny_folders["llama"]), dtype=torch.float32, device="cpu")
    bridge(torch.tensor([[4, 8]]))  # the first forward of a bridge attaches hooks of its own
    before = given(bridge.original_model)
    for _ in range(2):
        load_model(bridge).close()
        assert given(bridge.original_model) == before


def test_a_model_given_back_has_the_weights_it_had(tiny_folders: dict[str, Path], family: str) -> None:
    inner = hugging_face_model(tiny_folders[family])
    before = {name: value.clone() for name, value in inner.state_dict().items()}
    load_model(inner).close()
    assert list(inner.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in inner.state_dict().items())


def test_a_bridge_is_given_back_with_its_callers_hooks(tiny_folders: dict[str, Path]) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(str(tiny_folders["llama"]), dtype=torch.float32, device="cpu")
    bridge.add_hook("blocks.1.attn.hook_z", lambda z, hook: None)
    bridge.train()
    before, whole = given(bridge.original_model), [module_state(module) for module in bridge.modules()]
    counting = Counting()
    handle = bridge.original_model.register_forward_hook(counting)

    def interrupted() -> None:
        with load_model(bridge) as model:
            adapter = fitted_adapter(model, TASK)
            counting.arm(2, KeyboardInterrupt())
            generate(model, ["aa"], adapter)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    handle.remove()
    assert given(bridge.original_model) == before
    assert [module_state(module) for module in bridge.modules()] == whole


# Memory


def live_tensors() -> tuple[int, int]:
    """Number and bytes of all tensors that Python can reach."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    return len(tensors), sum(one.numel() * one.element_size() for one in tensors)


def use_once(source: Any) -> None:
    """Load, use and close."""
    with load_model(source, **({"device": "cpu"} if isinstance(source, Path) else {})) as model:
        adapter = fitted_adapter(model, TASK)
        generate(model, ["aa", "bb bc"], adapter, max_new_tokens=2)
        with inject(model, adapter):
            model.bridge(torch.tensor([model.token_ids("Q: aa\nA:")]))


def test_five_loads_and_unloads_leave_no_tensor_behind(tiny_folders: dict[str, Path]) -> None:
    seen = []
    for _ in range(5):
        use_once(tiny_folders["llama"])
        seen.append(live_tensors())
    assert seen == seen[:1] * 5


def test_uses_of_a_callers_model_leave_its_own_tensors_only(tiny_folders: dict[str, Path]) -> None:
    inner = hugging_face_model(tiny_folders["llama"])
    seen = []
    for _ in range(3):
        use_once(inner)
        seen.append(live_tensors())
    assert seen == seen[:1] * 3


def test_a_model_whose_use_failed_can_be_let_go(tiny_folders: dict[str, Path]) -> None:
    seen = []
    for _ in range(3):
        with (
            pytest.raises(KeyError),
            load_model(tiny_folders["llama"], device="cpu") as model,
            inject(model, fitted_adapter(model, TASK)),
        ):
            raise KeyError
        del model
        seen.append(live_tensors())
    assert seen == seen[:1] * 3


def resident_mib() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_five_loads_of_the_real_model_leave_resident_memory_flat() -> None:
    seen = []
    for _ in range(5):
        model = load_model("smollm2-135m", device="cpu")
        generate(model, ["hot"], max_new_tokens=2)
        model.close()
        del model
        gc.collect()
        seen.append(resident_mib())
    assert max(seen[1:]) < seen[0] + SLACK, seen
