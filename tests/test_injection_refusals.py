"""What an injection refuses, so that one that did nothing never looks like one without effect."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

LONG, SHORT = "Q: aa bc ed ab ca dj eb\nA:", "Q: bd\nA:"


def nothing_for(model: Any, n_rows: int = 1) -> Any:
    """An intervention of the right shape that keeps the model's own values."""
    from site_interp.injection import Intervention

    heads = (model.n_layers, model.n_heads)
    return Intervention(torch.zeros(n_rows, *heads, model.d_head), torch.zeros(n_rows, *heads))


def test_a_second_cache_in_one_block_is_refused_and_never_left_without_injection(
    llama: Any,
) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting
    from site_interp.prefixes import encode_prompts

    longer, shorter = (encode_prompts(llama, [prompt])[0] for prompt in (LONG, SHORT))
    with injecting(llama, nothing_for(llama)) as receipt:
        longer.run_last()
        with pytest.raises(UserError, match="one block for each cache"):
            shorter.run_last()
    assert receipt.n_forwards == 1


def test_a_block_without_a_forward_is_an_error(llama: Any) -> None:
    from site_interp.injection import injecting

    with pytest.raises(RuntimeError, match="no forward ran"), injecting(llama, nothing_for(llama)):
        pass


def test_a_row_whose_position_no_forward_computed_is_an_error(llama: Any) -> None:
    from site_interp.injection import injecting

    ids = torch.tensor([llama.token_ids(LONG)] * 2)
    with (
        pytest.raises(RuntimeError, match="never reached row 1"),
        injecting(llama, nothing_for(llama), torch.tensor([2, ids.shape[1]])),
    ):
        llama.bridge(ids)


def test_a_row_missed_by_the_first_of_two_calls_is_an_error(llama: Any) -> None:
    from site_interp.injection import injecting

    def two_calls() -> None:
        with injecting(llama, nothing_for(llama), torch.tensor([len(llama.token_ids(LONG)) - 1])):
            llama.bridge(torch.tensor([llama.token_ids(SHORT)]))
            llama.bridge(torch.tensor([llama.token_ids(LONG)]))

    with pytest.raises(RuntimeError, match="never reached row 0"):
        two_calls()


def test_a_layer_that_does_not_fire_or_fires_twice_is_an_error(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from site_interp.injection import injecting
    from site_interp.model import Model

    ids = torch.tensor([llama.token_ids(LONG)])
    whole = Model.hooked
    monkeypatch.setattr(Model, "hooked", lambda self, hooks, *around: whole(self, hooks[:-1], *around))
    with (
        pytest.raises(RuntimeError, match=r"blocks.2.attn.hook_z was injected 0 times"),
        injecting(llama, nothing_for(llama)),
    ):
        llama.bridge(ids)
    monkeypatch.setattr(Model, "hooked", lambda self, hooks, *around: whole(self, [*hooks, hooks[1]], *around))
    with (
        pytest.raises(RuntimeError, match=r"blocks.1.attn.hook_z was injected 2 times"),
        injecting(llama, nothing_for(llama)),
    ):
        llama.bridge(ids)


def test_padding_without_a_mask_is_refused(model: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting

    long, short = model.token_ids(LONG), model.token_ids(SHORT)
    padding = [model.tokenizer.pad_token_id] * (len(long) - len(short))
    for row in ([*padding, *short], [*short, *padding]):
        with pytest.raises(UserError, match="Pass attention_mask"), injecting(model, nothing_for(model)):
            model.bridge(torch.tensor([long, row]))


def test_padding_of_a_lone_row_without_a_mask_is_refused(model: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting

    ids, pad = model.token_ids(SHORT), model.tokenizer.pad_token_id
    for row in ([pad, *ids], [*ids, pad]):
        with pytest.raises(UserError, match="Pass attention_mask"), injecting(model, nothing_for(model)):
            model.bridge(torch.tensor([row]))
        with injecting(model, nothing_for(model)) as receipt:
            mask = torch.tensor([[int(token != pad) for token in row]])
            model.bridge(torch.tensor([row]), attention_mask=mask)
        assert receipt.columns == [len(row) - 1 - int(row[-1] == pad)]


@pytest.mark.parametrize("special", ["bos_token", "eos_token"])
def test_one_pad_token_that_is_also_bos_or_eos_may_be_the_text_of_a_lone_row_and_two_may_not(
    llama: Any, special: str
) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting

    tokenizer = copy.deepcopy(llama.tokenizer)
    tokenizer.pad_token = getattr(tokenizer, special)
    model, ids, pad = replace(llama, tokenizer=tokenizer), llama.token_ids(SHORT), tokenizer.pad_token_id
    for row in ([pad, *ids], [*ids, pad], [pad]):
        with injecting(model, nothing_for(model)) as receipt:
            model.bridge(torch.tensor([row]))
        assert receipt.columns == [len(row) - 1]
    for row in ([pad, pad, *ids], [*ids, pad, pad]):
        with pytest.raises(UserError, match="Pass attention_mask"), injecting(model, nothing_for(model)):
            model.bridge(torch.tensor([row]))


def test_a_forward_on_embeddings_is_refused(llama: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting

    with pytest.raises(UserError, match="Pass input ids"), injecting(llama, nothing_for(llama)):
        llama.inner(inputs_embeds=torch.zeros(1, 4, llama.d_model))


@pytest.mark.parametrize(
    ("target", "alpha"),
    [((1, 4, 4, 8), (1, 3, 4)), ((1, 3, 4, 8), (1, 3, 5)), ((1, 3, 4, 9), (1, 3, 4)), ((1, 3, 4, 8), (1, 4, 3))],
)
def test_shapes_of_another_model_are_refused(llama: Any, target: tuple[int, ...], alpha: tuple[int, ...]) -> None:
    from types import SimpleNamespace

    from site_interp.errors import UserError
    from site_interp.injection import Intervention

    # Without the run-time shape checks of the tests, as a user meets it.
    wrong: Any = SimpleNamespace(target=torch.zeros(target), alpha=torch.zeros(alpha))
    with pytest.raises(UserError, match="3 layers, 4 heads and d_head 8"):
        Intervention.writes(wrong, llama)


def test_a_batch_of_another_number_of_rows_is_refused(llama: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import injecting

    ids = torch.tensor([llama.token_ids(LONG)] * 2)
    with (
        pytest.raises(UserError, match="a batch of 2 rows: there are 3 alphas"),
        injecting(llama, nothing_for(llama, 3)),
    ):
        llama.bridge(ids)
    with (
        pytest.raises(UserError, match="3 positions"),
        injecting(llama, nothing_for(llama), torch.tensor([1, 2, 3])),
    ):
        llama.bridge(ids)


def test_an_exception_inside_the_block_is_not_replaced_by_the_receipts(llama: Any) -> None:
    from site_interp.injection import injecting

    with pytest.raises(KeyError, match="mine"), injecting(llama, nothing_for(llama)):
        raise KeyError("mine")
