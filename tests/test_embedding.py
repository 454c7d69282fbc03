"""Task embeddings against z read one prompt at a time from plain transformers."""

from typing import Any

import pytest
import torch
from reference import Oracle, n_hooks, reference_z
from tiny_models import WORDS

TOLERANCE = 1e-5  # z reaches 3; three fp32 layers deviate by 2e-6
PROMPTS = tuple(f"Q: {' '.join(WORDS[(5 * n + i) % 50] for i in range(n))}\nA:" for n in (12, 1, 30, 2))


def test_head_outputs_are_z_at_the_last_token_in_the_order_of_the_prompts(model: Any, oracle: Oracle) -> None:
    from site_interp.embedding import embed_prompts

    done: list[int] = []
    z = embed_prompts(model, PROMPTS, progress=done.append)
    assert torch.allclose(z, torch.stack([reference_z(oracle, p, model.n_heads) for p in PROMPTS]), atol=TOLERANCE)
    assert sum(done) == len(PROMPTS)
    assert torch.allclose(embed_prompts(model, PROMPTS, memory=1), z, atol=TOLERANCE)


def test_the_embedding_is_the_mean_over_its_prompts_with_their_spread(model: Any, oracle: Oracle, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.prompts import QA, draw_embedding_prompts
    from site_interp.tasks import Labelled

    embedding = embed_task(model, task, n_prompts=5, n_shots=3, seed=4)
    prompts = draw_embedding_prompts(Labelled(task), QA, n_prompts=5, n_shots=3, seed=4)
    each = [reference_z(oracle, prompt, model.n_heads) for prompt in prompts]
    mean = sum(each, torch.zeros_like(each[0])) / 5
    spread = (sum(((z - mean) ** 2 for z in each), torch.zeros_like(mean)) / 5).sqrt()
    assert torch.allclose(embedding.mean, mean, atol=TOLERANCE)
    assert torch.allclose(embedding.std, spread, atol=TOLERANCE)
    assert float(spread.max()) > 0.1


def test_a_single_prompt_has_no_spread(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task

    assert embed_task(llama, task, n_prompts=1, n_shots=2).std.eq(0).all()


def test_an_embedding_remembers_how_it_was_made(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.prompts import CHAT

    made = embed_task(llama, task, n_prompts=2, n_shots=1, seed=9, template=CHAT)
    assert (made.task, made.split_hash, made.split_seed) == (task.name, task.split_hash, 0)
    assert (made.n_prompts, made.n_shots, made.seed, made.template) == (2, 1, 9, CHAT)
    assert (made.model, made.dtype, made.fingerprint) == (llama.name, "float32", llama.fingerprint)


def test_labels_are_the_distinct_demonstrations_and_no_query_counts(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.tasks import Labelled

    labelled = Labelled(task)
    labelled.valid([0])
    assert embed_task(llama, labelled, n_prompts=1, n_shots=3).n_labels == 4
    assert embed_task(llama, task, n_prompts=1, n_shots=3).n_labels == 3
    # A prompt of 24 - 1 shots shows all training examples but its query.
    assert embed_task(llama, task, n_prompts=1, n_shots=23).n_labels == 23


def test_the_same_seed_gives_the_same_embedding_and_another_one_another(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task

    first, again, other = (embed_task(llama, task, n_prompts=3, n_shots=2, seed=seed).mean for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.01)


def test_embedding_leaves_the_model_as_it_was(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task

    before = n_hooks(llama.bridge)
    flags = [parameter.requires_grad for parameter in llama.inner.parameters()]
    embed_task(llama, task, n_prompts=2, n_shots=2)
    assert n_hooks(llama.bridge) == before
    assert [parameter.requires_grad for parameter in llama.inner.parameters()] == flags


def test_too_few_examples_for_the_shots_are_refused(llama: Any, task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.errors import UserError

    with pytest.raises(UserError, match=r"needs 25 distinct training examples .* found 24"):
        embed_task(llama, task, n_prompts=1, n_shots=24)
