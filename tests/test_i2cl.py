"""I2CL: the slow way gives the same numbers and texts, at every token, and the model is as before."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_model import planted_task, save_planted_model
from reference import Oracle
from torch import Tensor
from upper_fixtures import model_state, word_task

from site_interp.baselines import I2CL, I2CLFitted
from site_interp.baselines.fitted_files import write_fitted
from site_interp.errors import UserError
from site_interp.evaluation import evaluate, evaluate_fitted
from site_interp.model import load_model
from site_interp.tasks import Labelled, sub_seed

QUICK = I2CL(n_examples=4, n_epochs=3, noise=0.0, lr=0.05)
TOLERANCE = 1e-4


@contextmanager
def editing(oracle: Oracle, edit: Callable[[int, Tensor], Tensor]) -> Iterator[None]:
    """Pass what each attention and MLP puts out through `edit(index, value)`."""
    handles = []
    for index, module in enumerate(module for pair in oracle.outputs for module in pair):

        def hook(_: Any, __: Any, out: Any, index: int = index) -> Any:
            value = out[0] if isinstance(out, tuple) else out
            return (edit(index, value), *out[1:]) if isinstance(out, tuple) else edit(index, value)

        handles.append(module.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def slow_fit(model: Any, oracle: Oracle, seed: int) -> tuple[Tensor, Tensor]:
    task = word_task()
    chooser = random.Random(sub_seed(seed, "i2cl demonstrations", task.name))
    examples = [task.train[index] for index in chooser.sample(range(24), 4)]
    means: dict[int, Tensor] = {}
    for example in examples:
        seen: dict[int, Tensor] = {}

        def note(index: int, value: Tensor, seen: dict[int, Tensor] = seen) -> Tensor:
            seen[index] = value[0, -1]
            return value

        with editing(oracle, note):
            oracle.model(torch.tensor([oracle.ids(f"Q: {example.input}\nA: {example.answer}")]), use_cache=False)
        for index, value in seen.items():
            means[index] = means.get(index, torch.zeros(())) + value / 4
    vectors = torch.stack([means[index] for index in range(len(means))])
    shares = torch.tensor([[0.1, 1.0]] * len(vectors), requires_grad=True)
    optimizer = torch.optim.AdamW([shares], lr=QUICK.lr, weight_decay=QUICK.weight_decay)
    for _ in range(QUICK.n_epochs):
        order = chooser.sample(range(4), 4)
        for first in (0, 2):
            losses = []
            for index in order[first : first + 2]:
                prompt = oracle.ids(f"Q: {examples[index].input}\nA:")
                whole = oracle.ids(f"Q: {examples[index].input}\nA: {examples[index].answer}\n\n")
                with editing(oracle, mixed(vectors, shares)):
                    logits = oracle.model(torch.tensor([whole]), use_cache=False).logits[0]
                answer = whole[len(prompt) :]
                losses.append(-logits[len(prompt) - 1 : -1].log_softmax(-1)[range(len(answer)), answer])
            optimizer.zero_grad()
            (sum(loss.sum() for loss in losses) / sum(map(len, losses))).backward()
            optimizer.step()
    return vectors, shares.detach()


def mixed(vectors: Tensor, shares: Tensor) -> Callable[[int, Tensor], Tensor]:
    return lambda index, value: shares[index, 0] * vectors[index] + shares[index, 1] * value


def test_vectors_shares_and_texts_are_those_of_the_slow_way(model: Any, oracle: Oracle) -> None:
    state = model_state(model)
    fitted = QUICK.fit(model, Labelled(word_task()), 5)
    vectors, shares = slow_fit(model, oracle, 5)
    assert torch.allclose(fitted.vectors, vectors, atol=TOLERANCE)
    assert torch.allclose(fitted.shares, shares, atol=1e-3)
    assert float((shares - torch.tensor([0.1, 1.0])).abs().min()) > 0, "every number has moved"
    assert (fitted.n_parameters, fitted.n_labels) == (4 * model.n_layers, 4)
    task = word_task()
    made = evaluate_fitted(model, task, fitted, n_test=3)
    assert model_state(model) == state
    for text, log_prob, example in zip(made.texts, made.scores["answer_log_prob"], task.test_examples(3), strict=True):
        ids = oracle.ids(f"Q: {example.input}\nA:")
        answer = oracle.ids(f"Q: {example.input}\nA: {example.answer}")[len(ids) :]
        with editing(oracle, mixed(fitted.vectors, fitted.shares)):
            logits = oracle.model(torch.tensor([[*ids, *answer]]), use_cache=False).logits[0]
            found = logits[len(ids) - 1 : -1].log_softmax(-1)[range(len(answer)), answer].sum()
            assert log_prob == pytest.approx(float(found), abs=1e-3)
            new: list[int] = []
            while len(new) < 20 and "\n" not in model.decode(new):
                step = oracle.model(torch.tensor([[*ids, *new]]), use_cache=False).logits[0, -1]
                if int(step.argmax()) in model.stop_ids:
                    break
                new.append(int(step.argmax()))
        assert text == model.decode(new)


def test_the_bridge_gives_the_same(llama: Any) -> None:
    fitted = QUICK.fit(llama, Labelled(word_task()), 0)
    ids = torch.tensor([llama.token_ids("Q: aa bc\nA:")])
    found = []
    for one in (llama, llama.bridged()):
        with fitted.changing(one) as changed:
            found.append(changed.forward(ids, torch.ones_like(ids))[0])
    assert torch.allclose(*found, atol=1e-4)
    assert not torch.allclose(found[0], llama.forward(ids, torch.ones_like(ids))[0], atol=1e-2)


def test_noise_changes_the_fit_and_its_seed_repeats_it(llama: Any) -> None:
    noisy = replace(QUICK, noise=0.1)
    one, again, plain = (how.fit(llama, Labelled(word_task()), 0) for how in (noisy, noisy, QUICK))
    assert torch.equal(one.shares, again.shares)
    assert not torch.allclose(one.shares, plain.shares, atol=1e-4)


def test_a_planted_task_is_learnt(tmp_path: Path) -> None:
    model = load_model(save_planted_model(tmp_path / "planted"), device="cpu")
    (row,) = evaluate(model, planted_task("first", 3), [I2CL(n_epochs=60, lr=0.05)], n_test=8).rows
    assert set(row.scores["first_token"]) == {1.0}


def test_it_comes_back_from_its_folder_and_another_shape_does_not(llama: Any, tmp_path: Path) -> None:
    fitted = QUICK.fit(llama, Labelled(word_task()), 0)
    fitted.save_pretrained(tmp_path / "kept")
    again = I2CLFitted.from_pretrained(tmp_path / "kept", llama)
    assert (again.origin, again.notes) == (fitted.origin, fitted.notes)
    assert torch.equal(again.vectors, fitted.vectors)
    assert torch.equal(again.shares, fitted.shares)
    tensors = {"vectors": fitted.vectors, "shares": fitted.shares[:2]}
    write_fitted(tmp_path / "wrong", "i2cl", fitted.origin, tensors, {"notes": {}})
    with pytest.raises(UserError, match="do not fit each other"):
        I2CLFitted.from_pretrained(tmp_path / "wrong")


def test_fewer_examples_than_demonstrations_are_refused(llama: Any) -> None:
    with pytest.raises(UserError, match="it has 3 training examples"):
        I2CL().fit(llama, Labelled(word_task(n_train=3)), 0)
