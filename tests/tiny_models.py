"""Tiny random models of every family, built in code and saved to a folder: no download, under a second each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = tuple(f"{first}{second}" for first in _LETTERS[:5] for second in _LETTERS[:10])  # 50 two-letter words
_SPECIAL = ("<pad>", "<unk>", "<eos>", "<bos>")
_SIZES = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 256, "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """How a tiny model of a family is made, what its tokenizer does, and the sizes that differ between families."""

    build: Callable[[], Any]
    padding_side: str
    add_bos: bool
    n_kv_heads: int
    d_head: int = 8


def _llama() -> Any:
    """Llama 3.1: grouped key/value heads, and one rotary frequency in each of the three parts of its scaling."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rotary = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    return LlamaForCausalLM(
        LlamaConfig(**_SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=8, rope_parameters=rotary)
    )


def _gpt2() -> Any:
    """Absolute positions, biases, and one matrix for queries, keys and values."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(**_SIZES, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def _gemma3() -> Any:
    """A window of 6 tokens, shorter than the prompts, in two layers of three; d_head is not d_model / n_heads."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            **_SIZES, intermediate_size=48, num_key_value_heads=1, head_dim=16, sliding_window=6, layer_types=kinds,
            query_pre_attn_scalar=16,
        )
    )  # fmt: skip


def _mistral() -> Any:
    """A window of 6 tokens, shorter than the prompts, in every layer."""
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(
        MistralConfig(**_SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=8, sliding_window=6)
    )


def _mixtral() -> Any:
    """Two of four experts for each token, chosen with a margin that no rounding reaches.

    The first two channels of the residual stream are large, only the embedding writes them, and the routers read
    nothing else: their signs choose the experts. The other channels still move the experts' shares.
    """
    from transformers import MixtralConfig, MixtralForCausalLM

    model = MixtralForCausalLM(
        MixtralConfig(
            **_SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=8, sliding_window=None,
            num_local_experts=4, num_experts_per_tok=2,
        )
    )  # fmt: skip
    embedding = model.model.embed_tokens.weight.data
    embedding[:, :2] = 6 * (embedding[:, :2].sign() + 0.1 * embedding[:, :2])
    for block in model.model.layers:
        block.self_attn.o_proj.weight.data[:2] = 0
        block.mlp.experts.down_proj.data[:, :2] = 0
        block.mlp.gate.weight.data[:] = 0
        block.mlp.gate.weight.data[:, :2] = torch.tensor([[1.0, 0.4], [1.0, -0.4], [-1.0, 0.3], [-1.0, -0.3]])
    return model


def _qwen3() -> Any:
    """Queries and keys are normalised, and d_head is not d_model / n_heads."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**_SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=16))


def _gpt_neox() -> Any:
    """Attention and MLP side by side, half of each head rotated, and z of all heads from one fused matrix."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    rotary = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return GPTNeoXForCausalLM(GPTNeoXConfig(**_SIZES, intermediate_size=48, rope_parameters=rotary))


FAMILIES = {
    "llama": Family(_llama, "right", add_bos=False, n_kv_heads=2),
    "gpt2": Family(_gpt2, "right", add_bos=False, n_kv_heads=4),
    "gemma3": Family(_gemma3, "left", add_bos=True, n_kv_heads=1, d_head=16),
    "mistral": Family(_mistral, "right", add_bos=True, n_kv_heads=2),
    "mixtral": Family(_mixtral, "left", add_bos=True, n_kv_heads=2),
    "qwen3": Family(_qwen3, "left", add_bos=False, n_kv_heads=2, d_head=16),
    "gpt_neox": Family(_gpt_neox, "right", add_bos=False, n_kv_heads=4),
}
# Grouped heads, absolute positions, and a window with a BOS and left padding: enough where the family hardly matters.
THREE_FAMILIES = ("llama", "gpt2", "gemma3")

on_every_family = pytest.mark.parametrize("family", tuple(FAMILIES), indirect=True)
on_every_device = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]
        ),
    ],
    indirect=True,
)


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


def save_tiny_model(folder: Path, name: str, *, seed: int = 0) -> Path:
    """Save a random model of a family of `FAMILIES` with its tokenizer."""
    family = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = family.build()
    for parameter in model.parameters():  # biases start at 0 and norm weights at 1: one that is dropped must show
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.eval().save_pretrained(folder)
    save_tokenizer(folder, padding_side=family.padding_side, add_bos=family.add_bos)
    return folder
