"""Every method leaves the model exactly as it was: after a whole run, after an exception, and after an interrupt."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save_tiny_model
from upper_fixtures import word_task

from site_interp import evaluation
from site_interp.baselines import METHOD_NAMES, Fitted, FixedAnswers, Method, known_methods, named_method
from site_interp.evaluation import Evaluation, evaluate_fitted
from site_interp.model import Model, load_model
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled

TASK = word_task(n_train=8, n_valid=4, n_test=4)
SETTINGS = {  # of methods that would take longer by themselves
    "many_shot_icl": "max_tokens=60",
    "site": "n_steps=4,validate_every=2,n_valid=3",
    "function_vector": "n_prompts=2,n_shots=2,n_queries=2,n_valid=2",
    "task_vector": "n_prompts=2,n_shots=2,n_valid=2",
    "mtv": "n_prompts=2,n_shots=2,n_steps=3,n_samples=3,n_valid=2",
    "i2cl": "n_examples=3,n_epochs=2",
    "ltv": "n_steps=3,n_valid=2",
    "lora": "n_epochs=1,n_examples=4,batch_size=2,n_valid=2",
    "ia3": "n_epochs=1,n_examples=4,batch_size=2,n_valid=2",
}
NEVER_ASK_IN_FIT = ("zero_shot", "icl", "many_shot_icl", "knn", "majority", "echo")  # they choose examples, or nothing
NEVER_ASK = ("knn", "majority", "echo")  # they answer without the model as well
ASK_IN_FIT = tuple(name for name in METHOD_NAMES if name not in NEVER_ASK_IN_FIT)
ASK = tuple(name for name in METHOD_NAMES if name not in NEVER_ASK)

HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
              "_global_backward_pre_hooks")  # fmt: skip


class CallersError(Exception):
    """What a caller's own hook raises."""


class OwnHook:
    """A caller's own hook: it counts its calls, changes nothing, and raises at a chosen call."""

    def __init__(self) -> None:
        self.n, self.ends_at, self.ending = 0, 0, BaseException

    def __call__(self, *_: Any, **__: Any) -> None:
        self.n += 1
        if self.n == self.ends_at:
            raise self.ending

    def arm(self, ends_at: int = 0, ending: type[BaseException] = CallersError) -> None:
        self.n, self.ends_at, self.ending = 0, ends_at, ending


@dataclass
class Watched:
    """A caller's model: a hook on a layer and on a z, parameters of which every third asks for gradients, mixed modes.

    Args:
        model: The model.
        on_layer: On the own module of a layer, which every forward runs, with the bridge and without.
        on_z: On a hook point of TransformerLens.
        before: What the model looks like before anything is done.
        is_as_before: Whether the last look found nothing else.
    """

    model: Model
    on_layer: OwnHook = field(default_factory=OwnHook)
    on_z: OwnHook = field(default_factory=OwnHook)
    before: dict[str, Any] = field(default_factory=dict, repr=False)
    is_as_before: bool = False

    def __post_init__(self) -> None:
        layer = self.model.bridge.blocks[1].original_component
        layer.register_forward_hook(self.on_layer)
        self.model.bridge.add_hook(self.model.hook_z(0), self.on_z)
        for place, parameter in enumerate(self.model.inner.parameters()):
            parameter.requires_grad_(place % 3 == 0)
        for place, module in enumerate(self.model.inner.modules()):
            module.training = place % 2 == 0
        torch.manual_seed(0)
        self.look()  # the first forward of a bridge attaches hooks of its own
        self.before = self.look()
        for way in ("without the bridge", "through the bridge"):
            assert self.before[f"calls of own hooks {way}"] == (1, 1), "own hooks do not fire"

    def look(self) -> dict[str, Any]:
        """Everything a use could leave behind, each part by its name; own hooks are disarmed."""
        found: dict[str, Any] = {
            "torch: gradients are computed": torch.is_grad_enabled(),
            "torch: inference mode": torch.is_inference_mode_enabled(),
            "torch: default type": torch.get_default_dtype(),
            "torch: random state": torch.get_rng_state().tolist(),
            "attention": self.model.inner.config._attn_implementation,
        }
        for kind in EVERYWHERE:
            found[f"torch: {kind}"] = dict(getattr(torch.nn.modules.module, kind))
        seen = set[Any]()
        for side, whole in (("inner", self.model.inner), ("bridge", self.model.bridge)):
            for name, module in whole.named_modules(memo=seen, prefix=side):
                found.update(parts_of_module(name, module))
        for name, parameter in self.model.inner.named_parameters(remove_duplicate=False):
            found.update(parts_of_parameter(name, parameter))
        for way, model in (("without the bridge", self.model), ("through the bridge", self.model.bridged())):
            self.on_layer.arm()
            self.on_z.arm()
            found[f"logits {way}"] = logits_of(model)
            found[f"calls of own hooks {way}"] = (self.on_layer.n, self.on_z.n)
        return found

    def changes(self, *, gradients: bool = True) -> list[str]:
        """The names of all that is not as it was, where gradients are computed or not."""
        before, now = {**self.before, "torch: gradients are computed": gradients}, self.look()
        found = [name for name in before | now if name not in before or name not in now or before[name] != now[name]]
        self.is_as_before = not found
        return found

    def counted(self, use: Callable[[], Any]) -> tuple[int, Any]:
        """How often a use runs the layer, and what comes of it."""
        self.on_layer.arm()
        made = use()
        return self.on_layer.n, made

    def check_broken_off(self, use: Callable[[], Any], n_calls: int) -> None:
        """Break a use off by an error and by an interrupt, at its second call of the layer and at late ones."""
        assert n_calls >= 2, "there is no middle"
        late = -(-3 * n_calls // 4)
        for moment, ending in (
            (2, CallersError),
            (2, KeyboardInterrupt),
            (late, KeyboardInterrupt),
            (n_calls, CallersError),
        ):
            self.on_layer.arm(moment, ending)
            with pytest.raises(ending):
                use()
            assert self.on_layer.n == moment, "it went on"
            assert self.changes() == [], f"{ending.__name__} in call {moment} of {n_calls}"


def parts_of_module(name: str, module: Any) -> dict[str, Any]:
    own = vars(module)
    return {
        f"{name}: itself": (id(module), type(module)),
        f"{name}: attributes": sorted(own),
        f"{name}: parts": [(place, id(part)) for place, part in own["_modules"].items()],
        f"{name}: mode": module.training,
        f"{name}: hooks": {kind: list(own[kind].items()) for kind in HOOKS if own.get(kind)},
        f"{name}: hook point": [handle.hook for kind in ("fwd_hooks", "bwd_hooks") for handle in own.get(kind, ())],
    }


def parts_of_parameter(name: str, parameter: Any) -> dict[str, Any]:
    hooks = (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    return {
        f"{name}: itself": id(parameter),
        f"{name}: requires_grad": parameter.requires_grad,
        f"{name}: has no gradient": parameter.grad is None,
        f"{name}: hooks": [list(one or ()) for one in hooks],
        f"{name}: values": parameter.detach().numpy().tobytes(),
    }


@torch.no_grad()
def logits_of(model: Model) -> bytes:
    ids = torch.tensor([model.token_ids("Q: aa bc ed\nA:")])
    return model.forward(ids, torch.ones_like(ids))[0].numpy().tobytes()


def method_of(name: str) -> Method:
    """A method that fits in a fraction of a second."""
    known = known_methods(n_shots=2, n_prompts=2, fitting=FitSettings())
    return named_method(f"{name}:{SETTINGS.get(name, '')}", known)


def evaluated(model: Model, fitted: Fitted | FixedAnswers) -> Evaluation:
    return evaluate_fitted(model, TASK, fitted, progress=lambda _: None)


@pytest.fixture(autouse=True)
def _short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few tokens are as good as twenty here."""
    monkeypatch.setattr(evaluation, "MAX_NEW_TOKENS", 3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {family: save_tiny_model(root / family, family) for family in ("llama", "gpt2")}


@pytest.fixture(scope="module")
def loaded() -> dict[str, Watched]:
    """Models in use, by family."""
    return {}


@pytest.fixture
def watched(loaded: dict[str, Watched], folders: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A model as it was loaded: one that a test has changed is not used again."""
    family = getattr(request, "param", "llama")
    own = loaded.pop(family, None) or Watched(load_model(folders[family], device="cpu"))
    torch.manual_seed(0)
    own.is_as_before = False
    yield own
    if own.is_as_before:
        loaded[family] = own


def fit(watched: Watched, name: str) -> Fitted | FixedAnswers:
    return method_of(name).fit(watched.model, Labelled(TASK), 0)


@pytest.mark.parametrize("name", METHOD_NAMES)
@pytest.mark.parametrize(("watched", "gradients"), [("llama", True), ("gpt2", False)], indirect=["watched"])
def test_a_whole_run_leaves_the_model_as_it_was(watched: Watched, name: str, gradients: bool) -> None:
    with torch.set_grad_enabled(gradients):
        fitted = fit(watched, name)
        assert watched.changes(gradients=gradients) == [], "after the fit"
        made = evaluated(watched.model, fitted)
        assert watched.changes(gradients=gradients) == [], "after the evaluation"
    assert len(made.texts) == 4


@pytest.mark.parametrize("name", ASK_IN_FIT)
def test_a_fit_that_is_broken_off_leaves_the_model_as_it_was(watched: Watched, name: str) -> None:
    n_calls, _ = watched.counted(lambda: fit(watched, name))
    watched.check_broken_off(lambda: fit(watched, name), n_calls)


@pytest.mark.parametrize("name", NEVER_ASK_IN_FIT)
def test_a_fit_that_never_runs_the_model_has_no_middle(watched: Watched, name: str) -> None:
    n_calls, _ = watched.counted(lambda: fit(watched, name))
    assert n_calls == 0, "it runs the model: test its middle"
    assert watched.changes() == []


@pytest.mark.parametrize("name", ASK)
def test_an_evaluation_that_is_broken_off_leaves_the_model_as_it_was(watched: Watched, name: str) -> None:
    fitted = fit(watched, name)
    n_calls, made = watched.counted(lambda: evaluated(watched.model, fitted))
    watched.check_broken_off(lambda: evaluated(watched.model, fitted), n_calls)
    again = evaluated(watched.model, fitted)
    assert (again.texts, again.scores) == (made.texts, made.scores)


@pytest.mark.parametrize("name", NEVER_ASK)
def test_an_evaluation_that_never_runs_the_model_has_no_middle(watched: Watched, name: str) -> None:
    fitted = fit(watched, name)
    n_calls, _ = watched.counted(lambda: evaluated(watched.model, fitted))
    assert n_calls == 0, "it runs the model: test its middle"
    assert watched.changes() == []
