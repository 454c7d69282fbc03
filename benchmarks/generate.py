"""Generating with an adapter against generating without one, on the same batch of 64 prompts. Seconds.

    python benchmarks/generate.py [--repetitions N]

The adapter's alphas are 0, so that both decode the same tokens and only the injection differs; texts must be equal. The
plain way for comparison: one prompt at a time without a cache, each token by a whole forward (timed on a few prompts).
"""

import argparse
import sys

import torch
from _machine import median, report, timed

from site_interp import Adapter, embed_task, generate, load_model, load_task
from site_interp.selection import HeadSelection

N_INPUTS, N_TOKENS, PLAIN_INPUTS = 64, 12, 4


@torch.no_grad()
def plain_way(model, prompts):
    """Greedy text of each prompt, every token by a whole forward; cut as `generate` cuts."""
    texts = []
    for prompt in prompts:
        ids = model.token_ids(prompt)
        new = []
        while len(new) < N_TOKENS:
            token = int(model.bridge(torch.tensor([ids + new]), return_type="logits")[0, -1].argmax())
            if token in model.stop_ids:
                break
            new.append(token)
            if "\n" in model.decode(new):
                break
        texts.append(model.decode(new).split("\n", 1)[0].strip())
    return texts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    model = load_model("smollm2-135m")
    task = load_task("antonym")
    embedding = embed_task(model, task, n_prompts=2, progress=lambda _: None)
    adapter = Adapter(embedding, HeadSelection(torch.full((model.n_layers, model.n_heads), -200.0)))
    inputs = [example.input for example in task.train[:N_INPUTS]]
    prompts = [embedding.template.zero_shot(text) for text in inputs]
    generate(model, inputs, max_new_tokens=N_TOKENS)
    without, with_adapter, plain, same = [], [], [], True
    for _ in range(options.repetitions):
        left = timed(lambda: generate(model, inputs, max_new_tokens=N_TOKENS))
        right = timed(lambda: generate(model, inputs, adapter, max_new_tokens=N_TOKENS))
        slow = timed(lambda: plain_way(model, prompts[:PLAIN_INPUTS]))
        without.append(left.seconds)
        with_adapter.append(right.seconds)
        plain.append(slow.seconds * N_INPUTS / PLAIN_INPUTS)
        same = same and left.value == right.value and left.value[:PLAIN_INPUTS] == slow.value
    report(
        {
            "benchmark": "generate",
            "n_inputs": N_INPUTS,
            "plain_s": median(plain),
            "without_s": median(without),
            "with_s": median(with_adapter),
            "with_over_without": median(with_adapter) / median(without),
            "speedup": median(plain) / median(with_adapter),
            "repetitions": options.repetitions,
        }
    )
    if not same:
        sys.exit("The three ways gave different texts.")


if __name__ == "__main__":
    main()
