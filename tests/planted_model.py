"""A model whose heads are set by hand: L0H1 carries tasks answered from one group of words, L1H2 those of another.

Each of the two attends from any token to the words of its group, of which prompts hold only answers, and writes the
word it sees into the residual stream, which is one coordinate for each token. A few-shot prompt shows the answer, so
its last token says it; a zero-shot prompt holds no word of a group: nothing is written, the last token is repeated.
All other heads and the MLPs are zero.
"""

from pathlib import Path
from typing import Any

import torch
from tiny_models import WORDS, save_tokenizer

from site_interp.tasks import Example, Task

SIZE, N_HEADS, D_HEAD, N_LAYERS = 64, 4, 16, 2
FIRST_WORD = 8  # id of the first of WORDS in the tokenizer of `save_tokenizer`
INPUTS, FIRST, SECOND = WORDS[:20], WORDS[20:35], WORDS[35:50]
CARRIER = {"first": (0, 1), "second": (1, 2)}
ANSWERS = {"first": FIRST, "second": SECOND}
SCORE, GAIN = 60.0, 0.5


def save_planted_model(folder: Path) -> Path:
    """Save the model with its tokenizer: GPT-2 with positions, norms' biases and MLPs at zero."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=SIZE, n_embd=SIZE, n_layer=N_LAYERS, n_head=N_HEADS, n_positions=256, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=0, eos_token_id=2, bos_token_id=3,
        )
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        model.transformer.wte.weight.copy_(torch.eye(SIZE))
        for group, (layer, head) in CARRIER.items():
            _plant(model.transformer.h[layer].attn, head, [FIRST_WORD + WORDS.index(word) for word in ANSWERS[group]])
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder)
    save_tokenizer(folder, padding_side="right", add_bos=False)
    return folder


def _plant(attention: Any, head: int, tokens: list[int]) -> None:
    """Every query is the same, keys mark the tokens, values say which one it is, and W_O writes it back."""
    at = head * D_HEAD
    query, key, value = (part * SIZE + at for part in range(3))
    attention.c_attn.bias[query] = 1.0
    for place, token in enumerate(tokens):
        attention.c_attn.weight[token, key] = SCORE / 2  # a normalised one-hot is about 8, and scores are divided by 4
        attention.c_attn.weight[token, value + place] = 1.0
        attention.c_proj.weight[at + place, token] = GAIN


def planted_task(group: str, answer: int, *, name: str | None = None) -> Task:
    """Every input is answered by the same word of a group."""
    word = ANSWERS[group][answer]
    rows = [Example(f"{first} {second}", (word,)) for first in INPUTS for second in INPUTS[:3] if first != second]
    return Task(name or f"file/{group}-{answer}", tuple(rows[:30]), tuple(rows[30:42]), tuple(rows[42:]))
