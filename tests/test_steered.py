"""Methods that write once into zero-shot prompts: the slow way gives the same, and a planted task is found."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_model import planted_task, save_planted_model
from reference import Oracle, reference_last_logits, reference_residual, reference_residual_ids, reference_z
from torch import Tensor
from upper_fixtures import model_state, word_task

from site_interp.baselines import FunctionVector, Method, Steered, TaskVector
from site_interp.errors import UserError
from site_interp.evaluation import evaluate, evaluate_fitted
from site_interp.fit_plan import draw_valid
from site_interp.injection import Intervention, ResidualEdit
from site_interp.model import load_model
from site_interp.prompts import QA, draw_embedding_prompts, draw_icl_prompts
from site_interp.tasks import Labelled

TOLERANCE = 1e-4
SMALL = {"n_prompts": 3, "n_shots": 2, "n_valid": 4}
FV = FunctionVector(**SMALL, n_queries=4, n_heads=2)
TV = TaskVector(**SMALL)


def add(vector: Tensor) -> Any:
    return lambda state: state + vector


def put(vector: Tensor) -> Any:
    return lambda _: vector


def slow_choice(oracle: Oracle, items: Sequence[tuple[str, int]], edits: Sequence[Any]) -> int:
    """The layer with most first tokens right, then the highest log-probability, one prompt and layer at a time."""
    scores = []
    for layer, edit in enumerate(edits):
        hits, total = 0, 0.0
        for prompt, answer in items:
            logits = reference_residual_ids(oracle, prompt, 1, layer, edit)[1]
            hits += int(logits.argmax()) == answer
            total += float(logits.log_softmax(-1)[answer])
        scores.append((hits, total))
    return max(range(len(scores)), key=lambda layer: scores[layer])


def slow_effects(oracle: Oracle, model: Any, mean: Tensor) -> Tensor:
    """Change of the answer's probability by each head's mean in label-shuffled prompts, mean over prompts."""
    task = word_task()
    examples = task.valid[:4]
    prompts = draw_icl_prompts(Labelled(task), QA, [e.input for e in examples], n_shots=2, seed=0, shuffle_labels=True)
    effects = torch.zeros(model.n_layers, model.n_heads)
    for prompt, example in zip(prompts, examples, strict=True):
        answer = model.answer_ids(prompt, QA.answer(example.answer))[0]
        clean = reference_last_logits(oracle, prompt).softmax(-1)[answer]
        for layer in range(model.n_layers):
            for head in range(model.n_heads):
                alpha = torch.zeros(model.n_layers, model.n_heads)
                alpha[layer, head] = 1
                changed = reference_last_logits(oracle, prompt, mean, alpha).softmax(-1)[answer]
                effects[layer, head] += (changed - clean) / len(examples)
    return effects


def test_a_function_vector_is_that_of_the_slow_way(model: Any, oracle: Oracle) -> None:
    task = word_task()
    fitted = FV.fit(model, Labelled(task), 0)
    prompts = draw_embedding_prompts(Labelled(task), QA, n_prompts=3, n_shots=2, seed=0)
    mean = torch.stack([reference_z(oracle, prompt, model.n_heads) for prompt in prompts]).mean(dim=0)
    effects = slow_effects(oracle, model, mean)
    heads = [divmod(index, model.n_heads) for index in effects.flatten().argsort(descending=True)[:2].tolist()]
    assert [tuple(head) for head in fitted.notes["heads"]] == heads
    vector = torch.zeros(model.d_model)
    for layer, head in heads:
        only = torch.zeros_like(mean[layer])
        only[head] = mean[layer, head]
        projection = oracle.projections[layer]
        vector += projection(only.flatten()[None])[0] - projection(torch.zeros_like(only).flatten()[None])[0]
    layer = slow_choice(oracle, draw_valid(model, Labelled(task), QA, 4), [add(vector)] * model.n_layers)
    written = fitted.written
    assert isinstance(written, ResidualEdit)
    assert (written.layer, written.replaces) == (layer, False)
    assert torch.allclose(written.vector[0], vector, atol=TOLERANCE)


def test_a_task_vector_is_that_of_the_slow_way(model: Any, oracle: Oracle) -> None:
    task = word_task()
    fitted = TV.fit(model, Labelled(task), 0)
    prompts = draw_embedding_prompts(Labelled(task), QA, n_prompts=3, n_shots=2, seed=0)
    vectors = [
        torch.stack([reference_residual(oracle, prompt, layer) for prompt in prompts]).mean(dim=0)
        for layer in range(model.n_layers)
    ]
    items = draw_valid(model, Labelled(task), QA, 4)
    layer = slow_choice(oracle, items, [put(vector) for vector in vectors])
    written = fitted.written
    assert isinstance(written, ResidualEdit)
    assert (written.layer, written.replaces) == (layer, True)
    assert torch.allclose(written.vector[0], vectors[layer], atol=TOLERANCE)
    assert len(fitted.notes["validation"]["first_token"]) == model.n_layers


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_model(save_planted_model(tmp_path_factory.mktemp("planted") / "model"), device="cpu")


@pytest.mark.parametrize("method", [replace(FV, n_heads=8), TV], ids=lambda method: method.name)
@pytest.mark.parametrize("group", ["first", "second"])
def test_a_planted_task_is_switched_on(planted: Any, method: Method, group: str) -> None:
    task = planted_task(group, 3)
    table = evaluate(planted, task, [method], n_test=8)
    (row,) = table.rows
    assert set(row.scores["first_token"]) == {1.0}


@pytest.mark.parametrize("method", [FV, TV], ids=lambda method: method.name)
def test_a_fitted_method_comes_back_from_its_folder_and_leaves_the_model_alone(
    llama: Any, method: Method, tmp_path: Path
) -> None:
    task, before = word_task(), model_state(llama)
    labelled = Labelled(task)
    fitted = method.fit(llama, labelled, 3)
    assert model_state(llama) == before
    assert isinstance(fitted, Steered)
    assert fitted.n_labels == labelled.n_used > 0
    fitted.save_pretrained(tmp_path / "kept")
    again = Steered.from_pretrained(tmp_path / "kept", llama)
    assert (again.name, again.origin, again.notes, again.n_parameters) == (
        method.name, fitted.origin, fitted.notes, fitted.n_parameters,
    )  # fmt: skip
    ours, theirs = (evaluate_fitted(llama, task, one, n_test=4) for one in (fitted, again))
    assert (ours.scores, ours.texts) == (theirs.scores, theirs.texts)
    assert model_state(llama) == before


def test_a_fitted_method_is_refused_on_another_split(llama: Any) -> None:
    task = word_task()
    fitted = TV.fit(llama, Labelled(task), 0)
    other = replace(task, train=task.test, test=task.train)
    with pytest.raises(UserError, match="of another split"):
        evaluate(llama, other, [fitted])


def test_heads_and_vectors_of_another_shape_are_not_loaded(llama: Any, tmp_path: Path) -> None:
    fitted = TV.fit(llama, Labelled(word_task()), 0)
    wrong = replace(fitted, written=ResidualEdit(torch.zeros(1, 7), 0))
    wrong.save_pretrained(tmp_path / "wrong")
    with pytest.raises(UserError, match="7 numbers behind layer 0"):
        Steered.from_pretrained(tmp_path / "wrong", llama)
    heads = (1, llama.n_layers, llama.n_heads)
    added = replace(fitted, written=Intervention(torch.zeros(*heads, llama.d_head), torch.ones(*heads), adds=True))
    added.save_pretrained(tmp_path / "heads")
    written = Steered.from_pretrained(tmp_path / "heads", llama).written
    assert isinstance(written, Intervention)
    assert written.adds


@pytest.mark.parametrize("name", ["n_prompts", "n_heads", "n_valid", "n_queries"])
def test_counts_below_one_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} 0"):
        replace(FV, **{name: 0})


def test_a_task_without_validation_examples_has_no_layer_to_choose(llama: Any) -> None:
    task = replace(word_task(), valid=())
    with pytest.raises(UserError, match="no validation examples"):
        TV.fit(llama, Labelled(task), 0)
