"""The layer x head sweep: full forwards, one head at a time over the same batch, against branches on prefixes.

    python benchmarks/sweep.py [--repetitions N]

25 label-shuffled 10-shot prompts and 25 zero-shot prompts of bundled/antonym. The slow way sets one head's z at the
last token by a TransformerLens hook and runs the whole batch, logits at all positions; it is timed on `N_SLOW` heads
spread over the layers and scaled to all. Prefixes are encoded within the time of the quick way. Both give the same
effects.
"""

import argparse
import resource
import sys

import torch
from _machine import median, report, timed

from site_interp import embed_task, load_model, load_task
from site_interp.model import pad_left
from site_interp.patching.effects import draw_queries, sweep_prompts
from site_interp.tasks import Labelled

N_PROMPTS, N_SLOW = 25, 9
TOLERANCE = 1e-4


def slow_effects(model, prompts, answers, target, heads):
    """Log-probability changes [head prompt] by full forwards through the bridge, and the seconds of the heads."""
    ids, mask = pad_left([model.token_ids(prompt) for prompt in prompts], model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    tokens = torch.tensor(answers)[:, None]

    def log_probs(hooks):
        with torch.no_grad(), model.bridge.hooks(fwd_hooks=hooks):
            logits = model.bridge(ids, return_type="logits", attention_mask=mask, position_ids=positions)
        return logits[:, -1].float().log_softmax(-1).gather(-1, tokens)[:, 0]

    def writing(layer, head):
        def hook(z, hook):
            z = z.clone()
            z[:, -1, head] = target[layer, head]
            return z

        return [(model.hook_z(layer), hook)]

    clean = log_probs([])
    found = timed(lambda: [log_probs(writing(*head)) for head in heads])
    return torch.stack(found.value) - clean, found.seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args()
    model, task = load_model("smollm2-135m"), load_task("antonym")
    embedding = embed_task(model, task, n_prompts=10, progress=lambda _: None)
    target = embedding.mean.to(model.dtype)
    n_heads = model.n_layers * model.n_heads
    heads = [divmod(int(i), model.n_heads) for i in torch.linspace(0, n_heads - 1, N_SLOW)]
    numbers: dict[str, object] = {"benchmark": "sweep", "heads": n_heads, "prompts": N_PROMPTS}
    worst = 0.0
    for kind in ("shuffled", "zero_shot"):
        queries = draw_queries(model, Labelled(task), embedding, kind=kind, n_prompts=N_PROMPTS, seed=0)
        quick, slow = [], []
        for _ in range(options.repetitions):
            expected, seconds = slow_effects(model, queries.prompts, queries.answers, target, heads)
            slow.append(seconds * n_heads / N_SLOW)
            found = timed(lambda q=queries: sweep_prompts(
                model, q.prompts, q.answers, embedding.mean[None], progress=lambda _: None))  # fmt: skip
            quick.append(found.seconds)
            ours = torch.stack([found.value[0][:, layer, head] for layer, head in heads])
            worst = max(worst, float((ours - expected).abs().max()))
        numbers |= {
            f"{kind}_tokens": sum(len(model.token_ids(prompt)) for prompt in queries.prompts) / N_PROMPTS,
            f"{kind}_slow_s": median(slow),
            f"{kind}_quick_s": median(quick),
            f"{kind}_speedup": median(slow) / median(quick),
        }
    numbers |= {"deviation_nats": worst, "repetitions": options.repetitions}
    numbers["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report(numbers)
    if worst > TOLERANCE:
        sys.exit(f"Effects differ by {worst:.2g} nats; at most {TOLERANCE} is rounding.")


if __name__ == "__main__":
    main()
