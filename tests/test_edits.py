"""What may be written beside the interpolation of heads: added head outputs, and vectors in the residual stream."""

from typing import Any

import pytest
import torch
from reference import Oracle, n_hooks, reference_added_logits, reference_residual_ids

TOLERANCE = 1e-4
PROMPTS = ("Q: aa bc ed ab ca dj eb\nA:", "Q: bd\nA:", "Q: ce da ac bb\nA:")
N_TOKENS = 5


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("layer", [0, -1])
def test_a_vector_in_the_residual_stream_gives_logits_and_text_of_the_oracle(
    model: Any, oracle: Oracle, layer: int, replaces: bool
) -> None:
    from site_interp.injection import ResidualEdit, injected_logits, injected_text
    from site_interp.prefixes import encode_prompts, join_prefixes

    layer %= model.n_layers
    edit = ResidualEdit(draw(3, model.d_model), layer, replaces=replaces)
    before = n_hooks(model.bridge)
    prefixes = join_prefixes(encode_prompts(model, PROMPTS))
    rows = prefixes.rows
    logits = injected_logits(prefixes, edit.rows(rows))
    texts = injected_text(prefixes, edit.rows(rows), max_new_tokens=N_TOKENS, stop="\0")
    assert n_hooks(model.bridge) == before
    for place, row in enumerate(rows.tolist()):
        vector = edit.vector[row]
        ids, wanted = reference_residual_ids(
            oracle, PROMPTS[row], N_TOKENS, layer, lambda state, v=vector: v if replaces else state + v
        )
        assert torch.allclose(logits[place], wanted, rtol=0, atol=TOLERANCE)
        assert texts[place] == model.decode(ids)


def test_one_vector_serves_every_row_and_the_receipt_counts_one_point_a_row(llama: Any) -> None:
    from site_interp.injection import ResidualEdit, injecting
    from site_interp.prefixes import encode_prompts, join_prefixes

    prefixes = join_prefixes(encode_prompts(llama, PROMPTS))
    with injecting(llama, ResidualEdit(draw(1, llama.d_model), 1)) as receipt:
        prefixes.run_last()
    assert (receipt.n_forwards, receipt.n_injected) == (1, 3)


def test_added_head_outputs_leave_z_and_add_a_share_of_the_target(model: Any, oracle: Oracle) -> None:
    from site_interp.injection import Intervention, injected_logits
    from site_interp.prefixes import encode_prompts

    heads = (model.n_layers, model.n_heads)
    target, alpha = draw(1, *heads, model.d_head, seed=1), 3 * draw(1, *heads, seed=2)  # beyond 0 and 1 as well
    prompt = PROMPTS[0]
    (prefixes,) = encode_prompts(model, [prompt])
    found = injected_logits(prefixes, Intervention(target, alpha, adds=True))
    ids = oracle.ids(prompt)
    logits = reference_added_logits(oracle, ids, len(ids) - 1, target[0], alpha[0])[-1]
    assert torch.allclose(found[0], logits, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("size", "layer"), [(7, 0), (None, 3), (None, -1)])
def test_a_vector_that_does_not_fit_is_refused(llama: Any, size: int | None, layer: int) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import ResidualEdit, injecting

    edit = ResidualEdit(draw(1, size or llama.d_model), layer)
    with pytest.raises(UserError, match=f"behind layer {layer}"), injecting(llama, edit):
        pass


def test_a_vector_for_other_rows_is_refused(llama: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import ResidualEdit, injected_logits
    from site_interp.prefixes import encode_prompts, join_prefixes

    prefixes = join_prefixes(encode_prompts(llama, PROMPTS))
    with pytest.raises(UserError, match="3 rows: there are 2 vectors, 3 positions"):
        injected_logits(prefixes, ResidualEdit(draw(2, llama.d_model), 0))
