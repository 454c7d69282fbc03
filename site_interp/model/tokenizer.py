"""A model's tokenizer without its weights, and the one way in which an answer becomes tokens."""

from typing import Any

from site_interp.errors import UserError
from site_interp.model.bundled import bundled_model_path, bundled_models


def load_tokenizer(name: str, *, revision: str | None = None) -> tuple[Any, int]:
    """The tokenizer of a model and the longest prompt in tokens, in a second or two and without its weights.

    Args:
        name: A bundled name, a Hugging Face id, or a folder.
        revision: Revision of a Hugging Face id.

    Raises:
        UserError: Unknown name, or unreachable files.
    """
    from transformers import AutoConfig, AutoTokenizer

    from site_interp.model.load import _Quiet, refuse_misspelt, unreachable

    refuse_misspelt(name)
    folder = str(bundled_model_path(name)) if name in bundled_models() else name
    try:
        with _Quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, revision=revision)
            config = AutoConfig.from_pretrained(folder, revision=revision)
    except (OSError, ValueError) as error:
        raise unreachable(name, error, folder) from None
    return tokenizer, config.get_text_config().max_position_embeddings


def answer_ids(tokenizer: Any, prompt: str, answer: str) -> list[int]:
    """Ids of an answer: what follows the prompt when both are tokenised together.

    Args:
        tokenizer: As the model's own files make it.
        prompt: The prompt, ending in the answer cue.
        answer: The answer with its prefix (`Template.answer`).

    Raises:
        UserError: Prompt and answer merge into one token, or the answer has no token of its own.
    """
    before, both = tokenizer(prompt).input_ids, tokenizer(prompt + answer).input_ids
    if both and not before == both[: len(before)]:  # a tokenizer that appends EOS breaks the prefix as well
        raise UserError(
            f"Prompt and answer merge into one token: {prompt[-12:]!r} + {answer[:24]!r}. Start answers with a "
            "space (answer_prefix of the template), or end the cue differently."
        )
    if len(both) == len(before):
        raise UserError(f"Answer {answer!r} has no token of its own after {prompt[-12:]!r}. Leave the row out.")
    ids: list[int] = both[len(before) :]
    return ids
