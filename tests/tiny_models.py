"""Tiny random models of several families, built in code and saved to a folder: no download, under a second each."""

from pathlib import Path

FAMILIES = ("llama", "gpt2", "gemma3")

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = tuple(f"{first}{second}" for first in _LETTERS[:5] for second in _LETTERS[:10])  # 50 two-letter words
_SPECIAL = ("<pad>", "<unk>", "<eos>", "<bos>")


def save_tokenizer(folder: Path, *, padding_side: str, add_bos: bool) -> None:
    """A word-level tokenizer: each word with its leading space, `Q:`, `\\nA:` and the blank line are one token each."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = [*_SPECIAL, "Q:", "\n", "A:", " "] + [f" {word}" for word in WORDS] + ["A", "B"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n| ?[^\s]+| "), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    if add_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
        )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side=padding_side,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<eos>",
        bos_token="<bos>",
    ).save_pretrained(folder)


def save_tiny_model(folder: Path, family: str, *, seed: int = 0) -> Path:
    """Save a random model of a family with its tokenizer.

    Llama has grouped key/value heads, GPT-2 absolute positions and biases, Gemma 3 a window of 6 tokens (shorter than
    the prompts), left padding and a BOS token.
    """
    import torch
    from transformers import (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    special = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 3}
    if family == "llama":
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, max_position_embeddings=256, initializer_range=0.3, **special,
            )
        )  # fmt: skip
    elif family == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=64, n_embd=32, n_layer=3, n_head=4, n_positions=256, initializer_range=0.3,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **special,
            )
        )  # fmt: skip
    elif family == "gemma3":
        model = Gemma3ForCausalLM(
            Gemma3TextConfig(
                vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=1, head_dim=16, max_position_embeddings=256, sliding_window=6,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                query_pre_attn_scalar=16, initializer_range=0.3, **special,
            )
        )  # fmt: skip
    else:
        raise ValueError(f"No tiny model of family {family!r}; there are {', '.join(FAMILIES)}.")
    for parameter in model.parameters():  # biases start at 0 and norm weights at 1: one that is dropped must show
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.eval().save_pretrained(folder)
    save_tokenizer(folder, padding_side="left" if family == "gemma3" else "right", add_bos=family == "gemma3")
    return folder
