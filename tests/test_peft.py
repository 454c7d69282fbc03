"""LoRA and (IA)^3: the slow way with plain transformers gives the same, and nothing of them is left on the model."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from planted_model import planted_task, save_planted_model
from reference import load_oracle
from tiny_models import on_every_family
from upper_fixtures import model_state, word_task

from site_interp.baselines import IA3, LoRA, Method, PeftFitted
from site_interp.errors import UserError
from site_interp.evaluation import evaluate, evaluate_fitted
from site_interp.injection import Intervention, injecting
from site_interp.model import load_model, peft_modules
from site_interp.tasks import Labelled, sub_seed

METHODS: tuple[Method, ...] = (LoRA(rank=2, lr=0.01, n_valid=4), IA3(lr=0.05, n_valid=4))
TOLERANCE = 1e-4
by_name = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def logits_of(model: Any) -> torch.Tensor:
    ids = torch.tensor([model.token_ids("Q: aa bc ed\nA:")])
    with torch.no_grad():
        logits: torch.Tensor = model.forward(ids, torch.ones_like(ids))[0]
    return logits


@by_name
@on_every_family
def test_the_model_is_bit_equal_afterwards_and_the_loss_has_fallen(model: Any, method: Method) -> None:
    before, state = logits_of(model), model_state(model)
    modules = [(name, id(module)) for name, module in model.inner.named_modules(remove_duplicate=False)]
    fitted = method.fit(model, Labelled(word_task()), 0)
    assert isinstance(fitted, PeftFitted)
    first, last = fitted.notes["train_loss"][:3], fitted.notes["train_loss"][-3:]  # the batches of each epoch
    assert sum(last) < sum(first)
    assert fitted.notes["valid_loss"][1] < fitted.notes["valid_loss"][0]
    with fitted.changing(model) as changed:
        assert not torch.equal(logits_of(changed), before)
    assert torch.equal(logits_of(model), before)
    assert model_state(model) == state
    assert [(name, id(module)) for name, module in model.inner.named_modules(remove_duplicate=False)] == modules
    assert not hasattr(model.inner, "peft_config")


@by_name
def test_training_is_that_of_the_slow_way(model: Any, tiny_folders: dict[str, Path], family: str, method: Any) -> None:
    """One example at a time through plain transformers and peft, without padding."""
    task, seed = word_task(), 3
    fitted = method.fit(model, Labelled(task), seed)
    inner = load_oracle(tiny_folders[family]).model
    settings = {"r": 2, "lora_alpha": 16} if method.name == "lora" else {}
    config = {"lora": peft.LoraConfig, "ia3": peft.IA3Config}[method.name](task_type="CAUSAL_LM", **settings)
    torch.manual_seed(seed)
    peft.inject_adapter_in_model(config, inner)
    inner.eval()
    parameters = {name: value for name, value in inner.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(parameters.values(), lr=method.lr, weight_decay=0.0)
    chooser = random.Random(sub_seed(seed, "training examples", task.name))
    examples = [task.train[index] for index in chooser.sample(range(24), 24)]
    n_steps, step, valid = 6, 0, []
    for _ in range(2):
        order = chooser.sample(range(24), 24)
        for first in range(0, 24, 8):
            chosen = [examples[index] for index in order[first : first + 8]]
            losses = [slow_losses(model, inner, example) for example in chosen]
            (sum(loss.sum() for loss in losses) / sum(map(len, losses))).backward()
            for group in optimizer.param_groups:
                group["lr"] = method.lr * min(step + 1, (n_steps - step) / (n_steps - 1))
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        shown = list(range(6))
        random.Random(sub_seed(0, "validation examples", task.name)).shuffle(shown)
        held_out = torch.cat([slow_losses(model, inner, task.valid[index]).detach() for index in shown[:4]])
        valid.append(float(held_out.mean()))
    assert fitted.notes["valid_loss"] == pytest.approx(valid, abs=TOLERANCE)
    assert fitted.notes["epoch"] == 2
    assert fitted.values.keys() == parameters.keys()
    for name, value in parameters.items():
        assert torch.allclose(fitted.values[name], value.detach(), atol=1e-3), name


def slow_losses(model: Any, inner: Any, example: Any) -> torch.Tensor:
    prompt = model.tokenizer(f"Q: {example.input}\nA:").input_ids
    whole = model.tokenizer(f"Q: {example.input}\nA: {example.answer}\n\n").input_ids
    logits = inner(torch.tensor([whole]), use_cache=False).logits[0]
    answer = whole[len(prompt) :]
    return -logits[len(prompt) - 1 : -1].log_softmax(-1)[range(len(answer)), answer]


@by_name
def test_it_comes_back_from_its_folder(llama: Any, method: Method, tmp_path: Path) -> None:
    task, labelled = word_task(), Labelled(word_task())
    fitted = method.fit(llama, labelled, 0)
    assert isinstance(fitted, PeftFitted)
    assert fitted.n_labels == labelled.n_used == 24 + 4
    fitted.save_pretrained(tmp_path / "kept")
    again = PeftFitted.from_pretrained(tmp_path / "kept", llama)
    assert (again.name, again.origin, again.settings, again.notes) == (
        method.name, fitted.origin, fitted.settings, fitted.notes,
    )  # fmt: skip
    ours, theirs = (evaluate_fitted(llama, task, one, n_test=4) for one in (fitted, again))
    assert (ours.scores, ours.texts, ours.n_parameters) == (theirs.scores, theirs.texts, fitted.n_parameters)


def test_a_task_is_learnt(tmp_path: Path) -> None:
    model = load_model(save_planted_model(tmp_path / "planted"), device="cpu")
    task = planted_task("first", 3)
    (row,) = evaluate(model, task, [LoRA(lr=0.05, n_epochs=20)], n_test=8).rows
    assert set(row.scores["first_token"]) == {1.0}


@by_name
def test_an_exception_in_the_middle_leaves_nothing(llama: Any, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from site_interp.baselines import peft_fit

    before, state = logits_of(llama), model_state(llama)

    def interrupted(*_: Any) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(peft_fit, "_validate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        method.fit(llama, Labelled(word_task()), 0)
    assert torch.equal(logits_of(llama), before)
    assert model_state(llama) == state


def test_a_small_budget_gives_the_same_training(llama: Any) -> None:
    method = METHODS[0]
    one, other = (
        replace(method, memory=memory).fit(llama, Labelled(word_task()), 0)
        for memory in (1 << 30, 50_000)  # type: ignore[type-var]
    )
    assert one.notes["train_loss"] == pytest.approx(other.notes["train_loss"], abs=TOLERANCE)


def test_heads_are_not_hooked_while_weights_are_changed(llama: Any) -> None:
    heads = (1, llama.n_layers, llama.n_heads)
    edit = Intervention(torch.zeros(*heads, llama.d_head), torch.zeros(*heads))
    with (
        peft_modules(llama, "ia3", {}) as changed,
        pytest.raises(UserError, match="while its weights are changed"),
        injecting(changed, edit),
    ):
        pass
    with injecting(llama, edit):
        llama.bridge(torch.tensor([llama.token_ids("Q: aa\nA:")]))
        with pytest.raises(UserError, match="inside an inject block"), peft_modules(llama, "ia3", {}):
            pass


def test_weights_of_another_rank_are_refused(llama: Any) -> None:
    fitted = METHODS[0].fit(llama, Labelled(word_task()), 0)
    wrong = replace(fitted, settings={"r": 3})  # type: ignore[type-var]
    with pytest.raises(UserError, match="are not those of the model's"), wrong.changing(llama):
        pass


def test_without_peft_it_says_how_to_install_it(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"pip install 'site-interp\[peft\]'"):
        LoRA().fit(llama, Labelled(word_task()), 0)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_split_without_examples_is_refused(llama: Any, split: str) -> None:
    with pytest.raises(UserError, match="needs at least one of each"):
        LoRA().fit(llama, Labelled(replace(word_task(), **{split: ()})), 0)
