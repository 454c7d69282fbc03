"""Prompt encoders against their formulas written out, their published sizes, and what order does to them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from site_interp.errors import UserError
from site_interp.exemplars import IDPG, MHAESP, PESP, UESP, Encoded, PromptEncoder, PromptTuning

D_ENCODER, D_MODEL, N_SOFT, K = 12, 8, 3, 5
KINDS = {"mha": MHAESP, "p": PESP, "u": UESP, "idpg": IDPG, "tuning": PromptTuning}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_exemplars(batch: int = 4, n_exemplars: int = K) -> Encoded:
    draw = generator(1)
    vectors = torch.randn(batch, 2 * n_exemplars + 2, D_ENCODER, generator=draw)
    return Encoded(
        query=vectors[:, 0],
        exemplars=vectors[:, 2 : 2 + n_exemplars],
        present=torch.ones(batch, n_exemplars, dtype=torch.bool),
        similarity=torch.rand(batch, n_exemplars, generator=draw),
        together=vectors[:, 2 + n_exemplars :],
        whole=vectors[:, 1],
    )


def made(kind: str, n_soft: int = N_SOFT, seed: int = 0) -> PromptEncoder:
    encoder: PromptEncoder = KINDS[kind](D_ENCODER, D_MODEL, n_soft, seed=generator(seed))
    draw = generator(9)
    with torch.no_grad():
        for parameter in encoder.parameters():  # large enough to matter, biases too
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return encoder


def slow_mha(encoder: MHAESP, encoded: Encoded) -> Tensor:
    """One query, one head and one exemplar at a time."""
    soft = torch.zeros(len(encoded.query), N_SOFT, D_MODEL)
    for row in range(len(encoded.query)):
        for head in range(N_SOFT):
            w_q, w_k, w_v = encoder.weight[:, head]
            b_q, b_k, b_v = encoder.bias[:, head]
            query = w_q @ encoded.query[row] + b_q
            scores = [float(query @ (w_k @ one + b_k)) / math.sqrt(D_MODEL) for one in encoded.exemplars[row]]
            total = sum(math.exp(score) for score in scores)
            for score, one in zip(scores, encoded.exemplars[row], strict=True):
                soft[row, head] += math.exp(score) / total * (w_v @ one + b_v)
    return soft


def test_mha_esp_is_its_formula() -> None:
    encoder = made("mha")
    assert isinstance(encoder, MHAESP)
    encoded = some_exemplars()
    with torch.no_grad():
        assert torch.allclose(encoder(encoded), slow_mha(encoder, encoded), atol=1e-4)


@pytest.mark.parametrize(
    ("d_model", "n_soft", "published"),
    [(1024, 2, 3.57), (1024, 4, 5.93), (2560, 1, 4.16), (2560, 2, 7.11), (2560, 4, 13.03), (3072, 4, 15.39)],
)
def test_sizes_are_the_published_ones_less_the_tuned_encoder(d_model: int, n_soft: int, published: float) -> None:
    with torch.device("meta"):
        encoder = MHAESP(384, d_model, n_soft)
        single = IDPG(384, d_model, 1)
    assert encoder.n_parameters == 3 * n_soft * d_model * (384 + 1)
    assert encoder.n_parameters / 1e6 + 1.2 == pytest.approx(published, abs=0.01)
    assert single.n_parameters == d_model * (384 + 1)


def test_the_other_sizes_follow_their_formulas() -> None:
    assert made("p").n_parameters == D_MODEL * (D_ENCODER + 1)
    assert made("u", 1).n_parameters == D_MODEL * (D_ENCODER + 1)
    assert made("idpg").n_parameters == N_SOFT * D_MODEL * (D_ENCODER + 1)
    assert made("tuning").n_parameters == N_SOFT * D_MODEL


@pytest.mark.parametrize("kind", KINDS)
def test_every_encoder_gives_its_soft_tokens_and_the_seed_decides_them(kind: str) -> None:
    n_soft = K if kind == "p" else N_SOFT
    encoded = some_exemplars()
    one, again, other = (KINDS[kind](D_ENCODER, D_MODEL, n_soft, seed=generator(s)) for s in (0, 0, 1))
    assert one(encoded).shape == (4, n_soft, D_MODEL)
    assert torch.equal(one(encoded), again(encoded))
    assert not torch.equal(one(encoded), other(encoded))


def test_the_order_of_exemplars_changes_nothing_in_mha_esp_and_something_in_the_others() -> None:
    encoded, order = some_exemplars(), [3, 0, 4, 2, 1]
    shuffled = encoded.permuted(order)
    with torch.no_grad():
        mha, p_esp = made("mha"), made("p", K)
        assert float((mha(encoded) - mha(shuffled)).abs().max()) <= 1e-5
        assert float((p_esp(encoded) - p_esp(shuffled)).abs().max()) > 0.1
        u_esp = made("u", 1)
        assert encoded.whole is not None
        retold = replace(shuffled, whole=encoded.whole.flip(-1))  # another order is another text
        assert float((u_esp(encoded) - u_esp(retold)).abs().max()) > 0.1


def test_what_is_looked_at_changes_the_soft_tokens_and_nothing_else_does() -> None:
    encoded = some_exemplars()
    other_query = replace(encoded, query=encoded.query + 1)
    other_exemplars = replace(encoded, exemplars=encoded.exemplars + 1)
    for kind, by_query, by_exemplars in (
        ("mha", True, True),
        ("idpg", True, False),
        ("tuning", False, False),
        ("u", False, False),
    ):
        encoder = made(kind)
        with torch.no_grad():
            assert torch.equal(encoder(encoded), encoder(other_query)) != by_query, kind
            assert torch.equal(encoder(encoded), encoder(other_exemplars)) != by_exemplars, kind


def test_missing_exemplars_have_no_part() -> None:
    encoded = some_exemplars()
    fewer = torch.ones(4, K, dtype=torch.bool)
    fewer[:, 3:] = False
    short = {"similarity": encoded.similarity[:, :3], "together": None}
    cut = replace(encoded, exemplars=encoded.exemplars[:, :3], present=fewer[:, :3], **short)
    with torch.no_grad():
        mha = made("mha")
        assert torch.allclose(mha(replace(encoded, present=fewer)), mha(cut), atol=1e-6)
        soft = made("p", K)(replace(encoded, present=fewer))
        assert torch.equal(soft[:, 3:], torch.zeros(4, 2, D_MODEL))
        assert not torch.equal(soft[:, :3], torch.zeros(4, 3, D_MODEL))


def test_one_exemplar_leaves_the_query_without_influence() -> None:
    encoded = some_exemplars(n_exemplars=1)
    encoder = made("mha")
    assert isinstance(encoder, MHAESP)
    encoder(encoded).sum().backward()
    assert encoder.weight.grad is not None
    assert torch.equal(encoder.weight.grad[:2], torch.zeros_like(encoder.weight.grad[:2]))
    assert float(encoder.weight.grad[2].abs().sum()) > 0


def test_keys_and_values_of_a_bank_are_those_of_its_exemplars() -> None:
    encoded, encoder = some_exemplars(), made("mha")
    assert isinstance(encoder, MHAESP)
    bank = encoded.exemplars.flatten(0, 1)
    chosen = torch.arange(20).view(4, 5)
    with torch.no_grad():
        keys, values = encoder.projected(bank)
        soft, attention = encoder.attend(encoded, keys[chosen], values[chosen])
        assert torch.allclose(soft, encoder(encoded), atol=1e-6)
    assert attention.shape == (4, N_SOFT, K)
    assert torch.allclose(attention.sum(-1), torch.ones(4, N_SOFT))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tuning"])
def test_vectors_of_another_encoder_are_refused(kind: str) -> None:
    encoder = KINDS[kind](D_ENCODER + 1, D_MODEL, K)
    with pytest.raises(UserError, match="a query of 12 numbers with a prompt encoder made for 13"):
        encoder(some_exemplars())


def test_texts_that_are_needed_and_missing_are_asked_for() -> None:
    bare = replace(some_exemplars(), together=None, whole=None)
    with pytest.raises(UserError, match="Use a text encoder, and as many exemplars as soft tokens"):
        made("p", K)(bare)
    with pytest.raises(UserError, match="needs them in one text"):
        made("u")(bare)
    with pytest.raises(UserError, match="n_soft 0"):
        MHAESP(4, 4, 0)
