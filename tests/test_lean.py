"""Running the model's own modules: the bridge's numbers on every family, and nobody's hook missed."""

from typing import Any

import pytest
import torch
from tiny_models import WORDS, on_every_family

TOLERANCE = 1e-5  # as a share of the largest logit
PROMPTS = tuple(f"Q: {' '.join(WORDS[(3 * n + i) % 50] for i in range(n))}\nA:" for n in (9, 1, 4, 12))


def modules_of(inner: Any) -> list[tuple[str, int]]:
    return [(name, id(module)) for name, module in inner.named_modules(remove_duplicate=False)]


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


@on_every_family
def test_own_modules_give_the_bridges_logits_gradients_and_prefixes(model: Any) -> None:
    from site_interp.injection import Intervention, injected_logits
    from site_interp.prefixes import encode_prompts, join_prefixes

    assert model.lean.serves
    draw = torch.Generator().manual_seed(0)
    target = torch.randn(len(PROMPTS), model.n_layers, model.n_heads, model.d_head, generator=draw)
    found = []
    for one in (model, model.bridged()):
        prefixes = join_prefixes(encode_prompts(one, PROMPTS))
        alpha = torch.full(target.shape[:3], 0.5, requires_grad=True)
        with one.frozen():
            injected = injected_logits(prefixes, Intervention(target[prefixes.rows], alpha))
            injected[:, 7].sum().backward()
        found.append((prefixes.run_last()[0][:, -1], injected, alpha.grad))
    for own, bridged in zip(*found, strict=True):
        assert apart(own, bridged) <= TOLERANCE
    assert apart(found[0][0], found[0][1]) > 0.01


@on_every_family
def test_every_module_stands_in_its_place_after_a_forward_and_after_an_error(model: Any) -> None:
    before, attention = modules_of(model.inner), model.inner.config._attn_implementation
    ids = torch.tensor([model.token_ids(PROMPTS[0])])
    model.forward(ids, torch.ones_like(ids))
    model.prefill(ids, torch.ones_like(ids))
    with model.lean.running():
        assert modules_of(model.inner) != before
    with pytest.raises(KeyboardInterrupt), model.lean.running():
        raise KeyboardInterrupt
    assert modules_of(model.inner) == before
    assert model.inner.config._attn_implementation == attention


@on_every_family
@pytest.mark.parametrize("point", ["blocks.1.mlp.hook_out", "blocks.0.attn.hook_pattern", "blocks.1.hook_resid_pre"])
def test_a_hook_on_another_point_brings_the_bridge_back_and_fires(model: Any, point: str) -> None:
    ids = torch.tensor([model.token_ids(PROMPTS[0])])
    plain, _ = model.forward(ids, torch.ones_like(ids))
    with model.hooked([(point, lambda value: torch.zeros_like(value))]):
        assert not model.lean.serves
        edited, _ = model.forward(ids, torch.ones_like(ids))
        model.prefill(ids, torch.ones_like(ids))
    assert apart(edited, plain) > 0.01
    assert model.lean.serves


def test_a_callers_torch_hook_on_a_component_of_the_bridge_is_not_missed(llama: Any) -> None:
    ids, seen = torch.tensor([llama.token_ids(PROMPTS[0])]), []
    handle = llama.bridge.blocks[1].mlp.register_forward_hook(lambda *_: seen.append(1))
    try:
        assert not llama.lean.serves
        llama.forward(ids, torch.ones_like(ids))
    finally:
        handle.remove()
    assert seen == [1]
    assert llama.lean.serves


def test_hooks_on_z_alone_do_not_need_the_bridge(llama: Any) -> None:
    seen: list[torch.Size] = []
    ids = torch.tensor([llama.token_ids(PROMPTS[0])])
    with llama.hooked([(llama.hook_z(layer), lambda z: seen.append(z.shape)) for layer in range(llama.n_layers)]):
        assert llama.lean.serves
        llama.forward(ids, torch.ones_like(ids))
    assert seen == [(1, ids.shape[1], llama.n_heads, llama.d_head)] * llama.n_layers


def test_a_model_whose_projections_are_not_among_its_modules_has_no_lean_form(llama: Any) -> None:
    from site_interp.model.lean import find_lean

    class Elsewhere:
        original_component = torch.nn.Linear(2, 2)

    assert not find_lean(llama.bridge, [llama.bridge.blocks[0].attn.o, Elsewhere()]).serves


@on_every_family
def test_what_layers_attention_and_mlps_put_out_is_the_bridges_and_can_be_changed(model: Any) -> None:
    ids = torch.tensor([model.token_ids(PROMPTS[0])])
    for name in (model.hook_resid_post, model.hook_attn_out, model.hook_mlp_out):
        for layer in range(model.n_layers):
            found = []
            for one in (model, model.bridged()):
                seen: list[torch.Tensor] = []
                with one.hooked([(name(layer), lambda value, seen=seen: seen.append(value.clone()))]):
                    assert one.lean.serves == (one is model)
                    one.forward(ids, torch.ones_like(ids))
                with one.hooked([(name(layer), lambda value: value.roll(1, dims=-1))]):
                    changed, _ = one.forward(ids, torch.ones_like(ids))
                found.append((*seen, changed))
            (own, own_changed), (bridged, bridged_changed) = found
            assert apart(own, bridged) <= TOLERANCE
            assert apart(own_changed, bridged_changed) <= TOLERANCE
            assert apart(own_changed, model.forward(ids, torch.ones_like(ids))[0]) > 1e-3
