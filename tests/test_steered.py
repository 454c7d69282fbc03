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

from site_interp.baselines import LTV, MTV, FunctionVector, Method, Steered, TaskVector
from site_interp.baselines.mtv import policy_gradient
from site_interp.embedding import embed_task
from site_interp.errors import UserError
from site_interp.evaluation import evaluate, evaluate_fitted
from site_interp.fit_plan import FitRun, draw_plan, draw_valid
from site_interp.injection import Intervention, ResidualEdit
from site_interp.model import load_model
from site_interp.prompts import QA, draw_embedding_prompts, draw_icl_prompts
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled, sub_seed

TOLERANCE = 1e-4
SMALL = {"n_prompts": 3, "n_shots": 2, "n_valid": 4}
FV = FunctionVector(**SMALL, n_queries=4, n_heads=2)
TV = TaskVector(**SMALL)
WEIGHTS = LTV(**SMALL, n_steps=40, lr=0.2)
GATES = MTV(**SMALL, n_steps=40, n_samples=8)
STEERED = (FV, TV, WEIGHTS, GATES)


def add(vector: Tensor) -> Any:
    return lambda state: state + vector


def put(vector: Tensor) -> Any:
    return lambda _: vector


def slow_choice(oracle: Oracle, items: Sequence[tuple[str, tuple[int, ...]]], edits: Sequence[Any]) -> int:
    """The layer with most first tokens right, then the highest log-probability, one prompt and layer at a time."""
    scores = []
    for layer, edit in enumerate(edits):
        hits, total = 0, 0.0
        for prompt, (answer, *_) in items:
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


@pytest.mark.parametrize("method", [replace(FV, n_heads=8), *STEERED[1:]], ids=lambda method: method.name)
@pytest.mark.parametrize("group", ["first", "second"])
def test_a_planted_task_is_switched_on(planted: Any, method: Method, group: str) -> None:
    task = planted_task(group, 3)
    table = evaluate(planted, task, [method], n_test=8)
    (row,) = table.rows
    assert set(row.scores["first_token"]) == {1.0}


def test_the_layer_is_chosen_by_first_tokens_right(planted: Any) -> None:
    found = TV.fit(planted, Labelled(planted_task("first", 3)), 0).notes["validation"]
    assert found["first_token"][found["layer"]] == 1.0
    assert len(found["first_token"]) == planted.n_layers


@pytest.mark.parametrize("method", STEERED, ids=lambda method: method.name)
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


def test_mtvs_gradient_is_that_of_the_log_probability_of_its_draws() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, generator=draw).requires_grad_()
    with torch.no_grad():
        logits[0, 0], logits[1, 1] = 9.0, -9.0  # beyond the clamp
    gates = (torch.rand(5, 3, 4, generator=draw) < 0.5).float()
    rewards = torch.randn(5, generator=draw)
    bernoulli = torch.distributions.Bernoulli(torch.sigmoid(logits).clamp(1e-3, 1 - 1e-3))
    standard = (rewards - rewards.mean()) / (rewards.std() + 1e-3)
    loss = -(bernoulli.log_prob(gates).sum(dim=(1, 2)) * standard).sum()
    (wanted,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(policy_gradient(logits.detach(), gates, rewards), wanted, atol=1e-5)
    assert float(wanted[0, 0]) == float(wanted[1, 1]) == 0


def test_mtv_is_that_of_the_slow_way(model: Any, oracle: Oracle) -> None:
    task, method = word_task(), MTV(n_prompts=3, n_shots=2, n_steps=3, n_samples=16, init=0.2, n_valid=3, lr=0.3)
    fitted = method.fit(model, Labelled(task), 0)
    mean = embed_task(model, task, n_prompts=3, n_shots=2, progress=lambda _: None)
    plan = draw_plan(model, FitRun(mean, Labelled(task), 0), FitSettings(n_steps=3, n_valid=3))
    draw = torch.Generator().manual_seed(sub_seed(0, "gates", task.name) % 2**63)
    logits = torch.full((model.n_layers, model.n_heads), 0.2, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)

    def log_prob(prompt: str, answer: Sequence[int], gates: Tensor) -> Tensor:
        return reference_last_logits(oracle, prompt, mean.mean, gates).log_softmax(-1)[answer[0]]

    for ((prompt, answer),) in plan.steps:
        bernoulli = torch.distributions.Bernoulli(torch.sigmoid(logits).clamp(1e-3, 1 - 1e-3))
        drawn = [torch.rand(logits.shape, generator=draw) for _ in range(16)]
        gates = [(one < bernoulli.probs.detach()).float() for one in drawn]
        rewards = torch.stack([log_prob(prompt, answer, one) for one in gates])
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-3)
        optimizer.zero_grad()
        (-sum(a * bernoulli.log_prob(one).sum() for a, one in zip(advantage, gates, strict=True))).backward()
        optimizer.step()
    written = fitted.written
    assert isinstance(written, Intervention)
    assert torch.equal(written.alpha[0], (logits > 0).float())
    assert 0 < fitted.notes["n_open"] < logits.numel()
    losses = [-float(log_prob(*item, written.alpha[0])) for item in plan.valid]
    assert fitted.notes["valid_loss"] == [pytest.approx(sum(losses) / 3, abs=TOLERANCE)]


def test_mtv_needs_draws_to_compare() -> None:
    with pytest.raises(UserError, match="n_samples 1"):
        MTV(n_samples=1)
