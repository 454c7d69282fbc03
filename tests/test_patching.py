"""Sets of heads, rankings and curves: what a call scores is what rows scored one by one give."""

from typing import Any

import pytest
import torch
from upper_fixtures import fitted_adapter, quick_site, word_task

from site_interp.embedding import embed_prompts
from site_interp.errors import UserError
from site_interp.injection import Intervention, injected_logits
from site_interp.patching import (
    RANDOM_SHARES,
    SHARES,
    attention_by_role,
    attribute_heads,
    head_scores,
    head_writes,
    icl_ablation_curves,
    mask_of,
    n_of_share,
    n_scored,
    necessity_curves,
    random_masks,
    rank_heads,
    score_alphas,
    sufficiency_curves,
    sweep_heads,
)
from site_interp.patching.spread import embedding_spread, spread_of
from site_interp.prefixes import encode_prompts, kv_bytes
from site_interp.prompts import QA, draw_icl_prompts
from site_interp.tasks import Labelled

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def adapter(llama: Any) -> Any:
    return fitted_adapter(llama, word_task())


def best_answers(model: Any, prompts: Any, examples: Any) -> list[list[list[int]]]:
    return [
        [model.answer_ids(prompt, QA.answer(answer)) for answer in example.answers]
        for prompt, example in zip(prompts, examples, strict=True)
    ]


def test_heads_rank_by_value_then_by_ties_then_by_layer() -> None:
    values = torch.tensor([[0.0, 2.0], [2.0, 1.0]])
    assert rank_heads(values) == [(0, 1), (1, 0), (1, 1), (0, 0)]
    assert rank_heads(values, torch.tensor([[0.0, 0.0], [1.0, 0.0]])) == [(1, 0), (0, 1), (1, 1), (0, 0)]
    with pytest.raises(UserError, match="is nan"):
        rank_heads(values * float("nan"))


def test_random_sets_have_their_size_differ_and_come_again() -> None:
    masks = random_masks((3, 4), 5, n=6, seed=0)
    assert masks.flatten(1).sum(dim=1).tolist() == [5.0] * 6
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) > 1
    assert torch.equal(masks, random_masks((3, 4), 5, n=6, seed=0))
    assert not torch.equal(masks, random_masks((3, 4), 5, n=6, seed=1))


def test_every_alpha_scores_as_it_does_alone(llama: Any, adapter: Any) -> None:
    task = word_task()
    examples = task.test_examples(5)
    prompts = adapter.prompts([example.input for example in examples])
    answers = best_answers(llama, prompts, examples)
    alphas = torch.stack([torch.zeros(3, 4), torch.ones(3, 4), adapter.selection.alpha])
    targets = torch.stack([adapter.embedding.mean * scale for scale in (1.0, 1.0, 2.0)])
    found = score_alphas(llama, prompts, answers, targets, alphas)
    for alpha, target, scores in zip(alphas, targets, found, strict=True):
        for place, prompt in enumerate(prompts):
            (prefixes,) = encode_prompts(llama, [prompt])
            with torch.no_grad():
                logits = injected_logits(prefixes, Intervention(target[None], alpha[None]))[0]
            first = answers[place][0][0]
            assert scores["first_token"][place] == float(int(logits.argmax()) == first)
            if len(answers[place][0]) == 1:
                assert scores["answer_log_prob"][place] == pytest.approx(
                    float(logits.log_softmax(-1)[first]), abs=TOLERANCE
                )
        assert max(scores["answer_log_prob"]) < 0
    assert found[0] != found[1] != found[2]
    kv = kv_bytes(llama, max(len(llama.token_ids(prompt)) for prompt in prompts))
    for memory in (1, 4 * 7 * kv):  # one prompt and alpha at a time; room for the rows of one alpha, not of two
        for one, other in zip(
            score_alphas(llama, prompts, answers, targets, alphas, memory=memory), found, strict=True
        ):
            assert one["first_token"] == other["first_token"]
            assert one["answer_log_prob"] == pytest.approx(other["answer_log_prob"], abs=TOLERANCE)


def test_curves_end_where_nothing_and_everything_is_replaced(llama: Any, adapter: Any) -> None:
    task, top = word_task(), adapter.selection.ranking()
    rankings = {"top alpha": top, "bottom alpha": top[::-1]}
    counted: list[int] = []
    found = sufficiency_curves(llama, task, adapter, rankings, n_random=2, n_test=4, progress=counted.append)
    assert sum(counted) == n_scored(2, n_random=2, n_examples=4) + 4, "and the fitted adapter"
    upper, lower = found.curves
    assert [point.share for point in upper.points] == list(SHARES)
    assert upper.points[0].scores == lower.points[0].scores == found.references["zero-shot"]
    assert upper.points[-1].scores["answer_log_prob"] == pytest.approx(lower.points[-1].scores["answer_log_prob"])
    examples = task.test_examples(4)
    prompts = adapter.prompts([example.input for example in examples])
    answers = best_answers(llama, prompts, examples)
    mean = adapter.embedding.mean[None]
    half = torch.stack([mask_of(top[: n_of_share(50, 12)], (3, 4)), adapter.selection.alpha])
    by_hand, fitted = score_alphas(llama, prompts, answers, mean, half)
    assert upper.points[SHARES.index(50)].scores["answer_log_prob"] == pytest.approx(by_hand["answer_log_prob"])
    assert found.references["fitted adapter"]["answer_log_prob"] == pytest.approx(fitted["answer_log_prob"])
    assert [draw.share for draw in found.draws] == [share for share in RANDOM_SHARES for _ in range(2)]


def test_necessity_takes_heads_out_of_the_fitted_alpha(llama: Any, adapter: Any) -> None:
    task, top = word_task(), adapter.selection.ranking()
    found = necessity_curves(llama, task, adapter, {"top alpha": top}, n_random=0, n_test=3)
    examples = task.test_examples(3)
    prompts = adapter.prompts([example.input for example in examples])
    alpha = adapter.selection.alpha.clone()
    for layer, head in top[: n_of_share(30, 12)]:
        alpha[layer, head] = 0
    (expected,) = score_alphas(
        llama, prompts, best_answers(llama, prompts, examples), adapter.embedding.mean[None], alpha[None]
    )
    point = found.curves[0].points[SHARES.index(30)]
    assert point.k == 4
    assert point.scores["answer_log_prob"] == pytest.approx(expected["answer_log_prob"])


@pytest.mark.parametrize("to", ["mean", "zero"])
def test_ablation_replaces_heads_of_few_shot_prompts(llama: Any, adapter: Any, to: str) -> None:
    task, top = word_task(), adapter.selection.ranking()
    found = icl_ablation_curves(llama, task, adapter, {"top alpha": top}, to=to, n_random=0, n_test=3)
    examples = task.test_examples(3)
    prompts = draw_icl_prompts(Labelled(task), QA, [example.input for example in examples], n_shots=2, seed=0)
    target = torch.zeros(1, 3, 4, 8)
    if to == "mean":
        texts = [QA.zero_shot(example.input) for example in task.train]
        target = embed_prompts(llama, texts, progress=lambda _: None).mean(dim=0, keepdim=True)
    (expected,) = score_alphas(
        llama, prompts, best_answers(llama, prompts, examples), target, mask_of(top[:6], (3, 4))[None]
    )
    assert found.curves[0].points[SHARES.index(50)].scores["answer_log_prob"] == pytest.approx(
        expected["answer_log_prob"], abs=TOLERANCE
    )


def test_a_ranking_of_some_heads_or_an_unknown_ablation_is_refused(llama: Any, adapter: Any) -> None:
    task, top = word_task(), adapter.selection.ranking()
    with pytest.raises(UserError, match="of 12 entries 11 are different heads of this model, which has 12"):
        sufficiency_curves(llama, task, adapter, {"top alpha": [*top[:11], top[0]]}, n_test=2)
    with pytest.raises(UserError, match="there are mean and zero"):
        icl_ablation_curves(llama, task, adapter, {"top alpha": top}, to="noise", n_test=2)


@pytest.mark.parametrize("kind", ["zero_shot", "shuffled"])
def test_a_sweep_gives_each_heads_own_change(model: Any, kind: str) -> None:
    task = word_task()
    embedding = quick_site().embed(model, Labelled(task), 0, lambda _: None)
    found = sweep_heads(model, task, embedding, kind=kind, n_prompts=3, progress=lambda _: None)
    inputs = [example.input for example in task.valid[:3]]
    prompts = [QA.zero_shot(text) for text in inputs]
    if kind == "shuffled":
        prompts = list(draw_icl_prompts(Labelled(task), QA, inputs, n_shots=2, seed=0, shuffle_labels=True))
    for place, prompt in enumerate(prompts):
        (prefixes,) = encode_prompts(model, [prompt])
        token = model.answer_ids(prompt, QA.answer(task.valid[place].answer))[0]
        with torch.no_grad():
            clean = prefixes.run_last()[0][0, -1].log_softmax(-1)[token]
            for layer, head in ((0, 0), (1, 2), (2, 3)):
                alpha = mask_of([(layer, head)], (3, 4))[None]
                logits = injected_logits(prefixes, Intervention(embedding.mean[None], alpha))
                change = float(logits[0].log_softmax(-1)[token] - clean)
                assert float(found.values[place, layer, head]) == pytest.approx(change, abs=TOLERANCE)
        assert float(found.clean[place]) == pytest.approx(float(clean), abs=TOLERANCE)
    assert torch.allclose(found.mean, found.values.mean(dim=0))


def test_shuffled_labels_are_those_of_the_same_demonstrations() -> None:
    task = word_task()
    inputs = [example.input for example in task.valid]
    plain = draw_icl_prompts(Labelled(task), QA, inputs, n_shots=4, seed=0)
    shuffled = draw_icl_prompts(Labelled(task), QA, inputs, n_shots=4, seed=0, shuffle_labels=True)
    assert plain != shuffled
    for one, other in zip(plain, shuffled, strict=True):
        questions, answers = (
            [line for line in text.split("\n") if line[:2] == mark] for text in (one,) for mark in ("Q:", "A:")
        )
        others = [[line for line in other.split("\n") if line[:2] == mark] for mark in ("Q:", "A:")]
        assert questions == others[0]
        assert sorted(answers) == sorted(others[1])


def test_attribution_is_the_slope_of_the_sweep(model: Any) -> None:
    task = word_task()
    embedding = quick_site().embed(model, Labelled(task), 0, lambda _: None)
    found = attribute_heads(model, task, embedding, n_prompts=2, progress=lambda _: None)
    step = 1e-2
    for place in range(2):
        prompt = QA.zero_shot(task.valid[place].input)
        (prefixes,) = encode_prompts(model, [prompt])
        token = model.answer_ids(prompt, QA.answer(task.valid[place].answer))[0]
        for head in ((0, 1), (2, 2)):
            change = []
            for side in (step, -step):
                alpha = side * mask_of([head], (3, 4))[None]
                with torch.no_grad():
                    logits = injected_logits(prefixes, Intervention(embedding.mean[None], alpha))
                change.append(float(logits[0].log_softmax(-1)[token]))
            slope = (change[0] - change[1]) / (2 * step)
            assert float(found.values[place][head]) == pytest.approx(slope, rel=2e-2, abs=1e-3)


def test_too_many_prompts_or_an_unknown_kind_are_refused(llama: Any, adapter: Any) -> None:
    with pytest.raises(UserError, match="it has 6 validation"):
        sweep_heads(llama, word_task(), adapter.embedding, n_prompts=7)
    with pytest.raises(UserError, match="there are zero_shot and shuffled"):
        sweep_heads(llama, word_task(), adapter.embedding, kind="clean", n_prompts=2)


def test_spread_is_zero_for_equal_prompts_and_grows_with_their_distance() -> None:
    one = torch.randn(1, 2, 3, 4)
    same = spread_of(one.repeat(6, 1, 1, 1))
    assert float(same.deviation.max()) < 1e-6
    assert torch.allclose(same.split_half, torch.ones(2, 3))
    apart = torch.tensor([[[[2.0, 0.0]]], [[[0.0, 2.0]]]])  # mean (1, 1), both sqrt(2) from it, at right angles
    found = spread_of(apart)
    assert float(found.deviation[0, 0]) == pytest.approx(1.0)
    assert float(found.split_half[0, 0]) == pytest.approx(0.0)


def test_the_spread_is_that_of_the_embeddings_own_prompts(llama: Any) -> None:
    task = word_task()
    found = embedding_spread(llama, task, n_prompts=4, n_shots=2, progress=lambda _: None)
    embedding = quick_site(n_prompts=4).embed(llama, Labelled(task), 0, lambda _: None)
    away = embedding.std.square().sum(dim=-1).sqrt() / embedding.mean.norm(dim=-1)
    assert torch.allclose(found.deviation, away, atol=1e-4)
    with pytest.raises(UserError, match="two or more"):
        embedding_spread(llama, task, n_prompts=1, n_shots=2)


def test_attention_shares_add_up_and_a_head_made_for_it_looks_back(model: Any) -> None:
    shares = attention_by_role(model, word_task(), QA, n_shots=2, n_prompts=2, progress=lambda _: None)
    assert torch.allclose(sum(shares.values()), torch.ones(3, 4), atol=1e-4)
    assert min(float(share.min()) for share in shares.values()) >= 0
    scores = head_scores(model, length=10, n_rows=2)
    for values in (scores.induction, scores.previous):
        assert values.shape == (3, 4)
        assert float(values.min()) >= 0
        assert float(values.max()) <= 1
    with pytest.raises(UserError, match="Cannot show 200 tokens twice"):
        head_scores(model, length=200)


def test_a_head_that_is_not_there_has_nothing_to_write(llama: Any, adapter: Any) -> None:
    with pytest.raises(UserError, match="L3H0"):
        head_writes(llama, adapter.embedding.mean, [(3, 0)])
    with pytest.raises(UserError, match="Cannot list 0 tokens"):
        head_writes(llama, adapter.embedding.mean, [(0, 0)], n_tokens=0)


def test_what_heads_write_adds_up_to_what_their_layer_adds(model: Any) -> None:
    """All heads of a layer, one by one, against the projection of all of them at once."""
    from site_interp.model import project_heads

    z = torch.randn(1, 4, model.d_head)
    parts = torch.zeros(4, 4, model.d_head)
    for head in range(4):
        parts[head, head] = z[0, head]
    assert torch.allclose(project_heads(model, 1, parts).sum(dim=0), project_heads(model, 1, z)[0], atol=1e-4)
