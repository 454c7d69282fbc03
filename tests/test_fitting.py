"""Fitting: a planted alpha is found again, the right step is kept, and numbers do not depend on how the work is cut."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from reference import Oracle, n_hooks, reference_fit, reference_last_logits, reference_loss
from tiny_models import WORDS
from torch import Tensor

# Adam divides by the gradient's size, so rounding in a small gradient moves a step of lr 0.2 visibly.
LOGIT_TOLERANCE, LOSS_TOLERANCE = 5e-3, 1e-4
PLANTED = ((0, 2), (2, 1))
# Sampling error of the loss on 48 validation examples with the fitted instead of the planted alpha.
PLANTED_MARGIN = 0.1


@pytest.fixture(scope="module")
def embedding(model: Any, task: Any) -> Any:
    """An embedding of the small task whose target is random and of twice the usual size."""
    from site_interp.embedding import embed_task

    made = embed_task(model, task, n_prompts=2, n_shots=1)
    return replace(made, mean=2 * torch.randn(made.mean.shape, generator=torch.Generator().manual_seed(5)))


def settings(**changes: Any) -> Any:
    from site_interp.selection import FitSettings

    return FitSettings(**{"n_steps": 12, "batch_size": 2, "validate_every": 4, "n_valid": 8, **changes})


def items_of(model: Any, examples: Any) -> list[tuple[str, int]]:
    """Zero-shot prompts and their first answer tokens."""
    return [(f"Q: {e.input}\nA:", model.token_ids(f"A: {e.answer}")[-1]) for e in examples]


def planted_task(oracle: Oracle, target: Tensor, planted: Tensor) -> Any:
    """Inputs answered by a word drawn from what the model itself says with the planted alpha."""
    from site_interp.tasks import Example, Task

    chooser, draw = random.Random(0), torch.Generator().manual_seed(3)
    examples: dict[str, Example] = {}
    while len(examples) < 220:
        text = " ".join(chooser.choices(WORDS, k=chooser.randint(1, 9)))
        probabilities = reference_last_logits(oracle, f"Q: {text}\nA:", target, planted).softmax(dim=-1)
        word = oracle.tokenizer.decode(torch.multinomial(probabilities, 1, generator=draw)).strip()
        if word in WORDS:
            examples[text] = Example(text, (word,))
    rows = tuple(examples.values())
    return Task("file/planted", rows[48:], rows[:48], ())


def test_a_planted_alpha_is_found_again(model: Any, oracle: Oracle, embedding: Any) -> None:
    from site_interp.fitting import fit_selection

    planted = torch.zeros(model.n_layers, model.n_heads)
    for layer, head in PLANTED:
        planted[layer, head] = 1
    task = planted_task(oracle, embedding.mean, planted)
    chosen = settings(n_steps=100, batch_size=8, validate_every=25, n_valid=48)
    found = fit_selection(model, task, embedding, settings=chosen)
    assert set(found.ranking()[:2]) == set(PLANTED)
    assert all(found.alpha[layer, head] > 0.8 for layer, head in PLANTED)
    valid = items_of(model, task.valid)
    floor = reference_loss(oracle, valid, embedding.mean, planted)
    reached = reference_loss(oracle, valid, embedding.mean, found.alpha)
    assert reached < floor + PLANTED_MARGIN
    assert reached == pytest.approx(min(found.trace.valid_loss), abs=LOSS_TOLERANCE)
    assert reached < min(
        reference_loss(oracle, valid), reference_loss(oracle, valid, embedding.mean, torch.full_like(planted, 0.5))
    )


@pytest.mark.parametrize("batch_size", [1, 3])
def test_every_step_is_adams_on_the_first_answer_token_of_zero_shot_prompts(
    model: Any, oracle: Oracle, task: Any, embedding: Any, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    from site_interp import fit_steps, fitting

    stepped: list[str] = []
    run = fit_steps.injected_logits

    def noting(prefixes: Any, intervention: Any) -> Any:
        if torch.is_grad_enabled():
            rows = zip(prefixes.ids, prefixes.mask, strict=True)
            stepped.extend(model.decode(ids[mask.bool()].tolist()) for ids, mask in rows)
        return run(prefixes, intervention)

    monkeypatch.setattr(fit_steps, "injected_logits", noting)
    chosen = settings(batch_size=batch_size, checkpoint="last")
    found = fitting.fit_selection(model, task, embedding, settings=chosen)
    answers = {prompt: (prompt, answer) for prompt, answer in items_of(model, task.train)}
    items = [answers[text] for text in stepped]
    steps = [items[start : start + batch_size] for start in range(0, len(items), batch_size)]
    logits, losses = reference_fit(oracle, steps, embedding.mean, lr=0.2)
    assert len(steps) == 12
    assert len(set(stepped)) > batch_size
    assert torch.allclose(found.logits, logits, atol=LOGIT_TOLERANCE)
    assert found.trace.train_loss == pytest.approx(losses, abs=LOSS_TOLERANCE)


def test_validation_is_the_loss_on_held_out_examples_after_every_so_many_steps(
    model: Any, oracle: Oracle, task: Any, embedding: Any
) -> None:
    from site_interp.fitting import fit_selection

    found = fit_selection(model, task, embedding, settings=settings(n_steps=10, validate_every=4, checkpoint="last"))
    assert found.trace.valid_steps == (4, 8, 10)
    wanted = reference_loss(oracle, items_of(model, task.valid), embedding.mean, found.alpha)
    assert found.trace.valid_loss[-1] == pytest.approx(wanted, abs=LOSS_TOLERANCE)
    assert found.trace.chosen_step == 10


def worsening_task(oracle: Oracle, task: Any, target: Tensor) -> Any:
    """Validation answers are the words most likely at alpha 0.5, where fits begin; training pulls towards another."""
    from site_interp.tasks import Example

    half = torch.full(target.shape[:2], 0.5)
    words = oracle.tokenizer.convert_tokens_to_ids([f" {word}" for word in WORDS])
    likely = [reference_last_logits(oracle, f"Q: {e.input}\nA:", target, half)[words].argmax() for e in task.valid]
    return replace(
        task,
        train=tuple(Example(e.input, (WORDS[0],)) for e in task.train),
        valid=tuple(Example(e.input, (WORDS[i],)) for e, i in zip(task.valid, likely, strict=True)),
    )


def test_the_best_validated_step_is_kept_when_the_last_is_worse(
    model: Any, oracle: Oracle, task: Any, embedding: Any
) -> None:
    from site_interp.fitting import fit_selection

    against = worsening_task(oracle, task, embedding.mean)
    embedding = replace(embedding, split_hash=against.split_hash)  # as if made on this task
    chosen = settings(n_steps=40, batch_size=4, validate_every=5)
    best = fit_selection(model, against, embedding, settings=chosen)
    last = fit_selection(model, against, embedding, settings=replace(chosen, checkpoint="last"))
    assert best.trace.valid_loss == last.trace.valid_loss
    lowest = min(best.trace.valid_loss)
    assert lowest < best.trace.valid_loss[-1] - 0.05, "the last step must be the worse one for this test"
    assert best.trace.chosen_step == best.trace.valid_steps[best.trace.valid_loss.index(lowest)]
    assert last.trace.chosen_step == 40
    assert not torch.allclose(best.logits, last.logits, atol=0.1)
    # The logits kept are those of the chosen step, not of a later one.
    valid = items_of(model, against.valid)
    assert reference_loss(oracle, valid, embedding.mean, best.alpha) == pytest.approx(lowest, abs=LOSS_TOLERANCE)
    wanted = best.trace.valid_loss[-1]
    assert reference_loss(oracle, valid, embedding.mean, last.alpha) == pytest.approx(wanted, abs=LOSS_TOLERANCE)


def test_the_same_seed_gives_the_same_selection_bit_for_bit_and_another_one_another(
    model: Any, task: Any, embedding: Any
) -> None:
    from site_interp.fitting import fit_selection

    first, again, other = (
        fit_selection(model, task, embedding, seed=seed, settings=settings(checkpoint="last")) for seed in (0, 0, 1)
    )
    assert torch.equal(first.logits, again.logits)
    assert first.trace == again.trace
    assert not torch.allclose(first.logits, other.logits, atol=0.01)
    assert (first.seed, other.seed) == (0, 1)


def test_a_runs_numbers_do_not_depend_on_the_global_random_state(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.fitting import fit_selection

    logits = []
    for noise in (1, 2):
        random.seed(noise)
        torch.manual_seed(noise)
        embedding = embed_task(llama, task, n_prompts=2, n_shots=2)
        logits.append(fit_selection(llama, task, embedding, settings=settings()).logits)
    assert torch.equal(logits[0], logits[1])


def test_a_small_budget_cuts_the_work_into_pieces_and_gives_the_same_selections(
    model: Any, task: Any, embedding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from site_interp import fit_steps, fitting, kept
    from site_interp.fit_plan import FitRun
    from site_interp.tasks import Labelled

    encoded, batches = [], []
    encode, run = kept.encode_prompts, fit_steps.injected_logits

    def noting_prompts(model: Any, prompts: Any, **rest: Any) -> Any:
        encoded.append(len(prompts))
        return encode(model, prompts, **rest)

    def noting_rows(prefixes: Any, intervention: Any) -> Any:
        batches.append(len(prefixes))
        return run(prefixes, intervention)

    monkeypatch.setattr(kept, "encode_prompts", noting_prompts)
    monkeypatch.setattr(fit_steps, "injected_logits", noting_rows)
    found, work = [], []
    for memory in (1 << 30, 40_000):
        encoded.clear()
        batches.clear()
        runs = [FitRun(embedding, Labelled(task), seed) for seed in (0, 1)]
        found.append(fitting.fit_selections(model, runs, settings=settings(batch_size=4), memory=memory))
        work.append((len(encoded), max(batches)))
    assert work[0][0] == 2, "with room for everything, prompts are encoded once for training and once for validation"
    assert work[1][0] > 4
    assert work[0][1] == 16, "the validation examples of both runs share a batch"
    assert work[1][1] == 1
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one.logits, other.logits, atol=LOGIT_TOLERANCE)
        assert one.trace.train_loss == pytest.approx(other.trace.train_loss, abs=LOSS_TOLERANCE)
        assert one.trace.valid_loss == pytest.approx(other.trace.valid_loss, abs=LOSS_TOLERANCE)
        assert one.trace.chosen_step == other.trace.chosen_step


def test_the_model_is_left_as_it_was(model: Any, task: Any, embedding: Any) -> None:
    from site_interp.fitting import fit_selection

    first = next(iter(model.inner.parameters()))
    wanted = first.requires_grad
    first.requires_grad_(False)
    flags = [parameter.requires_grad for parameter in model.inner.parameters()]
    modes = [module.training for module in model.inner.modules()]
    values = [parameter.detach().clone() for parameter in model.inner.parameters()]
    hooks = n_hooks(model.bridge)
    try:
        fit_selection(model, task, embedding, settings=settings(n_steps=2))
        assert [parameter.requires_grad for parameter in model.inner.parameters()] == flags
        assert True in flags
    finally:
        first.requires_grad_(wanted)
    assert [module.training for module in model.inner.modules()] == modes
    assert all(torch.equal(p, value) for p, value in zip(model.inner.parameters(), values, strict=True))
    assert all(parameter.grad is None for parameter in model.inner.parameters())
    assert n_hooks(model.bridge) == hooks


def test_fitting_works_where_gradients_are_switched_off_and_leaves_them_off(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.fitting import fit_selection

    embedding = embed_task(llama, task, n_prompts=2, n_shots=2)
    wanted = fit_selection(llama, task, embedding, settings=settings(n_steps=3))
    with torch.no_grad():  # as the first line of many notebooks does for good
        found = fit_selection(llama, task, embedding, settings=settings(n_steps=3))
        assert not torch.is_grad_enabled()
    assert torch.equal(found.logits, wanted.logits)


def test_labels_are_the_distinct_examples_looked_at_validation_included(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.fitting import fit_selection
    from site_interp.tasks import Labelled

    def used(**changes: Any) -> int:
        return int(fit_selection(llama, task, embedding, settings=settings(**changes)).n_labels)

    embedding = embed_task(llama, task, n_prompts=1, n_shots=1)
    assert used(n_steps=1, batch_size=1, n_valid=5) == 1 + 5
    assert used(n_steps=1, batch_size=1, n_valid=100) == 1 + 8
    assert used(n_steps=50, batch_size=8, n_valid=1) == 24 + 1
    labelled = Labelled(task)
    embedding = embed_task(llama, labelled, n_prompts=1, n_shots=23)
    shared = fit_selection(llama, labelled, embedding, settings=settings(n_steps=50, batch_size=8, n_valid=8))
    assert shared.n_labels == labelled.n_used == 24 + 8


def test_progress_counts_every_step_of_every_run(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.fit_plan import FitRun
    from site_interp.fitting import fit_selections
    from site_interp.tasks import Labelled

    embedding, done = embed_task(llama, task, n_prompts=1, n_shots=1), []
    runs = [FitRun(embedding, Labelled(task), seed) for seed in range(3)]
    found = fit_selections(llama, runs, settings=settings(n_steps=5), progress=done.append)
    assert sum(done) == 15
    assert [selection.seed for selection in found] == [0, 1, 2]
    assert all(len(selection.trace.train_loss) == 5 for selection in found)


def test_a_task_without_training_or_validation_examples_is_refused(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.errors import UserError
    from site_interp.fitting import fit_selection

    embedding = embed_task(llama, task, n_prompts=1, n_shots=1)
    for split in ("train", "valid"):
        with pytest.raises(UserError, match="at least one of each"):
            fit_selection(llama, replace(task, **{split: ()}), embedding, settings=settings())


def test_an_embedding_of_another_model_is_refused(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.errors import UserError
    from site_interp.fitting import fit_selection

    made, other = embed_task(llama, task, n_prompts=1, n_shots=1), torch.zeros(3, 4, 16)
    embedding = replace(made, mean=other, std=other)
    with pytest.raises(UserError, match="d_head 8"):
        fit_selection(llama, task, embedding, settings=settings())


def test_a_loss_that_is_not_finite_is_an_error_that_names_the_prompt(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.errors import NotFiniteError
    from site_interp.fitting import fit_selection

    made = embed_task(llama, task, n_prompts=1, n_shots=1)
    endless = replace(made, mean=torch.full_like(made.mean, 3e38))
    with pytest.raises(NotFiniteError, match=r"prompt \d+, 'Q: .*they are not finite in float32"):
        fit_selection(llama, task, endless, settings=settings())


def test_an_embedding_of_another_split_is_refused(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.errors import UserError
    from site_interp.fitting import fit_selection

    made = embed_task(llama, task, n_prompts=1, n_shots=1)
    with pytest.raises(UserError, match="of another split"):
        fit_selection(llama, replace(task, train=task.train[:-1]), made, settings=settings())


def test_an_answer_that_merges_with_its_prompt_is_refused(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.errors import UserError
    from site_interp.fitting import fit_selection
    from site_interp.prompts import Template

    embedding = embed_task(llama, task, n_prompts=1, n_shots=1, template=Template(answer_prefix=""))
    with pytest.raises(UserError, match="merge into one token"):
        fit_selection(llama, task, embedding, settings=settings())


def test_one_alpha_for_several_tasks_follows_the_sum_of_their_losses(model: Any, task: Any, embedding: Any) -> None:
    """Against Adam written out, one prompt at a time; a single task gives what it gives alone."""
    from site_interp.fit_plan import FitRun, draw_plan
    from site_interp.fitting import fit_joint_selection, fit_selections
    from site_interp.injection import Intervention, injected_logits
    from site_interp.prefixes import encode_prompts
    from site_interp.tasks import Labelled

    other = replace(embedding, mean=embedding.mean.flip(0))
    quick = settings(n_steps=4, batch_size=2, validate_every=2, checkpoint="last")
    runs = [FitRun(embedding, Labelled(task), 0), FitRun(other, Labelled(replace(task, name="file/other")), 0)]
    plans = [draw_plan(model, run, quick) for run in runs]
    found = fit_joint_selection(model, runs, settings=quick)
    assert found.trace is not None
    logits = torch.zeros(model.n_layers, model.n_heads, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=quick.lr)
    losses = []
    with model.frozen(), torch.enable_grad():
        for step in range(quick.n_steps):
            optimizer.zero_grad()
            per_task = []
            for run, plan in zip(runs, plans, strict=True):
                rows = [(encode_prompts(model, [prompt])[0], token) for prompt, (token, *_) in plan.steps[step]]
                per_row = [
                    -injected_logits(one, Intervention(run.embedding.mean[None], logits.sigmoid()[None])).log_softmax(
                        -1
                    )[0, token]
                    for one, token in rows
                ]
                per_task.append(sum(per_row) / len(per_row))
            sum(per_task).backward()
            optimizer.step()
            losses.append(float(sum(per_task).detach()) / 2)
    assert found.trace.train_loss == pytest.approx(losses, abs=LOSS_TOLERANCE)
    assert torch.allclose(found.logits, logits.detach(), atol=LOGIT_TOLERANCE)
    assert found.n_labels == sum(run.labelled.n_used for run in runs)
    alone = fit_selections(model, runs[:1], settings=quick)[0]
    single = fit_joint_selection(model, runs[:1], settings=quick)
    assert torch.allclose(single.logits, alone.logits, atol=LOGIT_TOLERANCE)
    assert single.trace == alone.trace


def test_one_alpha_for_no_task_is_refused(llama: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.fitting import fit_joint_selection

    with pytest.raises(UserError, match="no task was given"):
        fit_joint_selection(llama, [])
