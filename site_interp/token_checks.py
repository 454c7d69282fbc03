"""What a model's tokenizer says about a task: answers it cannot tell apart or hides, prompts that do not fit."""

import heapq
from collections import defaultdict
from typing import Any

from site_interp.errors import UserError
from site_interp.model import answer_ids
from site_interp.prompts import Template, draw_icl_prompts
from site_interp.tasks import Example, Labelled, Task
from site_interp.tasks.check import Finding, Level, all_examples, are_labels, finding


def check_tokens(task: Task, template: Template, tokenizer: Any, *, n_ctx: int, n_shots: int) -> list[Finding]:
    """Check a task with a tokenizer, without the model's weights; one finding per check.

    Args:
        task: The task.
        template: How examples become text.
        tokenizer: As `load_tokenizer` gives it.
        n_ctx: The model's context in tokens.
        n_shots: Demonstrations in a prompt.
    """
    first: dict[Example, int] = {}
    merged = []
    for e in all_examples(task):
        try:
            first[e] = answer_ids(tokenizer, template.zero_shot(e.input), template.answer(e.answer))[0]
        except UserError:
            merged.append(f"{e.input} -> {e.answer}")
    return [
        finding(
            "merging answers", "error",
            "Examples whose answer and prompt become one token, or whose answer has none; change the template.",
            merged, fine="Every answer starts a token of its own.",
        ),
        _shared_first(task, first),
        _special(task, tokenizer),
        _zero_shot(task, template, tokenizer, n_ctx),
        *_few_shot(task, template, tokenizer, n_ctx, n_shots),
    ]  # fmt: skip


def _shared_first(task: Task, first: dict[Example, int]) -> Finding:
    labels = defaultdict(set)
    for e, index in first.items():
        labels[index].add(e.answer)
    shared = [e for e, index in first.items() if len(labels[index]) > 1]
    level: Level = "warning" if are_labels(task) else "note"
    share = len(shared) / max(1, len(first))
    message = f"Examples ({share:.0%}) whose first answer token begins another answer too; do not rest on first_token."
    groups = [" | ".join(sorted(labels[first[e]])[:3]) for e in shared]
    return finding("first tokens", level, message, groups, fine="Every answer has its own first token.")


def _special(task: Task, tokenizer: Any) -> Finding:
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    texts = dict.fromkeys(text for e in all_examples(task) for text in (e.input, *e.answers))
    found = [text for text in texts if special & set(tokenizer(text, add_special_tokens=False).input_ids)]
    message = "Texts that the tokenizer reads as special tokens; the model takes them for the start or end of a text."
    return finding("special tokens", "warning", message, found, fine="No text holds a special token.")


def _zero_shot(task: Task, template: Template, tokenizer: Any, n_ctx: int) -> Finding:
    sizes = {e.input: _n_tokens(tokenizer, template.zero_shot(e.input)) for e in all_examples(task)}
    longest = f"the longest zero-shot prompt has {max(sizes.values()):,} tokens, the context {n_ctx:,}"
    beyond = [text for text, size in sizes.items() if size > n_ctx]
    message = f"Zero-shot prompts beyond the context: {longest}. Shorten these inputs."
    return finding("zero-shot length", "error", message, beyond, fine=f"All fit: {longest}.")


def _few_shot(task: Task, template: Template, tokenizer: Any, n_ctx: int, n_shots: int) -> list[Finding]:
    """Nothing is drawn where even the longest demonstrations fit together."""
    if len(task.train) < n_shots + 1:
        return []  # an error of its own
    name = f"{n_shots}-shot length"
    by_size = heapq.nlargest(n_shots, task.train, key=lambda e: _n_tokens(tokenizer, template.few_shot([e], "")))
    query = max(task.test, key=lambda e: _n_tokens(tokenizer, template.zero_shot(e.input)))
    most = _n_tokens(tokenizer, template.few_shot(by_size, query.input))
    if most <= n_ctx:
        return [Finding(name, "ok", f"All fit: at most {most:,} tokens, the context {n_ctx:,}.")]
    inputs = [e.input for e in task.test]
    prompts = draw_icl_prompts(Labelled(task), template, inputs, n_shots=n_shots, seed=0)
    sizes = [_n_tokens(tokenizer, prompt) for prompt in prompts]
    beyond = [text for text, size in zip(inputs, sizes, strict=True) if size > n_ctx]
    shown = f"{n_shots}-shot test prompts with seed 0 have up to {max(sizes):,} tokens, the context {n_ctx:,}"
    if beyond:
        return [finding(name, "error", f"{shown}. Lower --n-shots.", beyond, fine="")]
    message = f"{shown}; with the longest demonstrations it would be {most:,}, so that another seed may fail."
    return [Finding(name, "warning", message)]


def _n_tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text).input_ids)
