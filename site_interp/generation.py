"""Using adapters: text for inputs, and injection into any forward or generation of the model itself."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from jaxtyping import Int
from torch import Tensor

from site_interp.adapter import Adapter
from site_interp.errors import UserError, did_you_mean
from site_interp.injection import Intervention, injected_text, injecting
from site_interp.injector import Receipt
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, iterate_prefixes
from site_interp.prompts import QA, Template

NO_ADAPTER = "__base__"  # as in peft: a row of this name is left to the model as it is


def inject(
    model: Model,
    adapter: Adapter | Mapping[str, Adapter],
    columns: Int[Tensor, " batch"] | None = None,
    *,
    adapter_names: Sequence[str] | None = None,
) -> AbstractContextManager[Receipt]:
    """Switch the task on for every forward or generation of the model inside a `with` block.

    Each call is injected once per row and layer, at its last prompt token; the receipt counts. Hooks are gone after the
    block, also after an exception.

    Args:
        model: Run `model.bridge` (or the Hugging Face model `model.inner`) in any way; padded batches need a mask.
        adapter: Made with this model; or several by name, for batches whose rows have different tasks.
        columns: Position of each row as a column of the padded batch; needed only for prompts computed in chunks.
        adapter_names: With several adapters, the one of each row, `"__base__"` for none (its alphas are 0, its logits
            exactly the model's own); a single name serves all rows.

    Raises:
        UserError: An adapter of another model, an unknown name, or a batch of another number of rows.
        RuntimeError: On leaving, if some row or layer was not injected exactly once.

    Example:
        with inject(model, adapter) as receipt:
            model.bridge.generate("Q: early\\nA:", max_new_tokens=5, prepend_bos=False)
        with inject(model, {"antonym": one, "french": two}, adapter_names=["french", "antonym"]):
            model.bridge(ids, attention_mask=mask, position_ids=positions)
    """
    if adapter is None:
        raise UserError("Cannot inject nothing: give an Adapter, or a mapping of names to adapters.")
    chosen = _chosen(model, adapter, adapter_names)
    stacked, places = _stacked(model, chosen)
    if adapter_names is not None:
        stacked = Intervention(stacked.target[places], stacked.alpha[places])
    return injecting(model, stacked, columns)


def generate(
    model: Model,
    inputs: Sequence[str],
    adapter: Adapter | Mapping[str, Adapter] | None = None,
    *,
    adapter_names: Sequence[str] | None = None,
    template: Template | None = None,
    raw: bool = False,
    max_new_tokens: int = 20,
    memory: int = DEFAULT_MEMORY,
) -> list[str]:
    """Greedy answers for inputs, with the task switched on; inputs of different tasks go through the model together.

    Args:
        model: Left as it is.
        inputs: Task inputs; the template makes the prompts (`adapter.template.zero_shot(input)` shows one).
        adapter: What to inject; several by name, where inputs have different tasks; None asks the model as it is.
        adapter_names: With several adapters, the one of each input, in any order; `"__base__"` for none.
        template: How inputs become prompts where there is no adapter, by default `QA`; an adapter brings its own.
        raw: Take the inputs as whole prompts.
        max_new_tokens: Longest answer in tokens.
        memory: Budget in bytes.

    Returns:
        One answer per input, cut at the stop text of its template and stripped.

    Raises:
        UserError: An adapter of another model or template, an unknown name, not a name for each input, a prompt that is
            empty or longer than the context, or logits that are not finite.

    Example:
        generate(model, ["hot", "house"], {"antonym": one, "french": two}, adapter_names=["antonym", "french"])
    """
    if isinstance(inputs, str) or not all(isinstance(text, str) for text in inputs):
        raise UserError(f"Cannot generate for {str(inputs)[:60]!r}: give a list of texts, such as ['hot', 'early'].")
    chosen = _chosen(model, adapter, adapter_names)
    if adapter_names is None:
        chosen = chosen * len(inputs)
    if len(chosen) != len(inputs):
        raise UserError(
            f"Cannot generate for {len(inputs)} inputs with {len(chosen)} adapter names. Give one for each."
        )
    for one in {id(one): one for one in chosen if one is not None}.values():
        if template is not None and not raw:
            one.check_template(template)
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise UserError(f"Cannot generate {max_new_tokens!r} tokens. Give max_new_tokens of 1 or more.")
    templates = [template or (QA if one is None else one.template) for one in chosen]
    prompts = list(inputs) if raw else [how.zero_shot(text) for how, text in zip(templates, inputs, strict=True)]
    stacked, places = _stacked(model, chosen)
    answers = [""] * len(prompts)
    for prefixes in iterate_prefixes(model, prompts, memory=memory, max_rows=64):
        rows = prefixes.rows.tolist()
        stops = [templates[row].stop for row in rows]
        intervention = stacked.rows(places[prefixes.rows]) if any(chosen[row] is not None for row in rows) else None
        texts = injected_text(prefixes, intervention, max_new_tokens=max_new_tokens, stop=stops)
        for row, stop, text in zip(rows, stops, texts, strict=True):
            answers[row] = text.split(stop, 1)[0].strip()
    return answers


def check_adapter_name(name: str, known: Collection[str], doing: str) -> None:
    """Refuse a name that is neither an adapter's nor `"__base__"`.

    Args:
        name: Asked for.
        known: Names of the adapters.
        doing: First words of the error's sentence, "Cannot ...".

    Raises:
        UserError: Names the nearest, and all that there are.
    """
    names = [*known, NO_ADAPTER]
    if name not in names:
        hint = did_you_mean(str(name), names) or " Take one of them."
        raise UserError(f"{doing}: no adapter is called {name!r}, there are {', '.join(names)}.{hint}")


def _chosen(
    model: Model, adapter: Adapter | Mapping[str, Adapter] | None, names: Sequence[str] | None
) -> list[Adapter | None]:
    """The adapter of each name; without names the one for every row."""
    several = list(adapter.values()) if isinstance(adapter, Mapping) else [adapter]
    if wrong := [one for one in several if not isinstance(one, Adapter | None)]:
        raise UserError(
            f"Cannot use {str(wrong[0])[:60]!r} as an adapter: give an Adapter (Adapter.from_pretrained(FOLDER)), or "
            "several by name."
        )
    if isinstance(names, str):
        raise UserError(f"Cannot read the adapter names {names!r}: give a list of names, one for each row.")
    if isinstance(adapter, Mapping) != (names is not None):
        raise UserError(
            "Cannot tell which adapter each row has: adapter_names go with a mapping of names to adapters, and a "
            "mapping with adapter_names. Give both, or one adapter."
        )
    if adapter is None or isinstance(adapter, Adapter):
        if adapter is not None:
            adapter.check_model(model)
        return [adapter]
    if NO_ADAPTER in adapter:
        raise UserError(f"Cannot call an adapter {NO_ADAPTER!r}: the name means none. Choose another name.")
    for one in adapter.values():
        one.check_model(model)
    for name in names or ():
        check_adapter_name(name, adapter, "Cannot choose an adapter for each row")
    return [adapter.get(name) for name in names or ()]


def _stacked(model: Model, chosen: Sequence[Adapter | None]) -> tuple[Intervention, Int[Tensor, " batch"]]:
    """Every different adapter once, and each row's place among them; none has alpha 0, which changes no bit."""
    heads = (model.n_layers, model.n_heads)
    none = Intervention(torch.zeros(1, *heads, model.d_head, device="cpu"), torch.zeros(1, *heads, device="cpu"))
    different = {id(one): none if one is None else one.intervention() for one in chosen}
    order = list(different)
    target = torch.cat([each.target for each in different.values()] or [none.target])
    alpha = torch.cat([each.alpha for each in different.values()] or [none.alpha])
    places = torch.tensor([order.index(id(one)) for one in chosen], dtype=torch.long, device=model.device)
    return Intervention(target.to(model.device), alpha.to(model.device)), places
