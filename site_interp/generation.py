"""Using an adapter: text for inputs, and injection into any forward or generation of the model itself."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from jaxtyping import Int
from torch import Tensor

from site_interp.adapter import Adapter
from site_interp.injection import Receipt, injected_text, injecting
from site_interp.model import Model
from site_interp.prefixes import DEFAULT_MEMORY, iterate_prefixes
from site_interp.prompts import QA, Template


def inject(
    model: Model, adapter: Adapter, columns: Int[Tensor, " batch"] | None = None
) -> AbstractContextManager[Receipt]:
    """Switch the task on for every forward or generation of the model inside a `with` block.

    Each call is injected once per row and layer, at its last prompt token; the receipt counts. Hooks are gone after the
    block, also after an exception.

    Args:
        model: Run `model.bridge` (or the Hugging Face model `model.inner`) in any way; padded batches need a mask.
        adapter: Made with this model.
        columns: Position of each row as a column of the padded batch; needed only for prompts computed in chunks.

    Raises:
        UserError: An adapter of another model.
        RuntimeError: On leaving, if some row or layer was not injected exactly once.

    Example:
        with inject(model, adapter) as receipt:
            model.bridge.generate("Q: early\\nA:", max_new_tokens=5, prepend_bos=False)
    """
    adapter.check_model(model)
    return injecting(model, adapter.intervention(), columns)


def generate(
    model: Model,
    inputs: Sequence[str],
    adapter: Adapter | None = None,
    *,
    template: Template | None = None,
    raw: bool = False,
    max_new_tokens: int = 20,
    memory: int = DEFAULT_MEMORY,
) -> list[str]:
    """Greedy answers for inputs, with the task switched on.

    Args:
        model: Left as it is.
        inputs: Task inputs; the template makes the prompts.
        adapter: What to inject; None asks the model as it is.
        template: How inputs become prompts; by default the adapter's.
        raw: Take the inputs as whole prompts.
        max_new_tokens: Longest answer in tokens.
        memory: Budget in bytes.

    Returns:
        One answer per input, cut at the template's stop text and stripped.

    Raises:
        UserError: An adapter of another model, or a prompt that is empty or longer than the context.
    """
    if adapter is not None:
        adapter.check_model(model)
    template = template or (QA if adapter is None else adapter.template)
    prompts = list(inputs) if raw else [template.zero_shot(text) for text in inputs]
    intervention = None if adapter is None else adapter.intervention()
    answers = [""] * len(prompts)
    for prefixes in iterate_prefixes(model, prompts, memory=memory, max_rows=64):
        texts = injected_text(prefixes, intervention, max_new_tokens=max_new_tokens, stop=template.stop)
        for row, text in zip(prefixes.rows.tolist(), texts, strict=True):
            answers[row] = text.split(template.stop, 1)[0].strip()
    return answers
