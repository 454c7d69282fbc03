"""Prompts encoded once and gathered in every step: kept in few tensors, so that gathering costs little."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from site_interp.model import Model
from site_interp.prefixes import Prefixes, encode_prompts, join_prefixes, kv_bytes, prompt_buckets

# Prompts that share tensors are padded to one length: at most so much longer than the shortest of them.
RATIO, SLACK = 1.06, 4


class KeptPrefixes:
    """Prompts encoded and kept, found by their text.

    Args:
        model: The model to run.
        prompts: Different texts; what they take is `kept_bytes`.
        memory: Budget in bytes for encoding and joining them, beside what is kept.
    """

    def __init__(self, model: Model, prompts: Sequence[str], memory: int) -> None:
        self.model = model
        self._groups: list[Prefixes] = []
        buckets = encode_prompts(model, prompts, memory=memory)
        for n_buckets in _joined(model, [(len(bucket), bucket.ids.shape[1]) for bucket in buckets], memory):
            # What is joined is let go at once, so that one group at most is held twice.
            self._groups.append(join_prefixes([buckets.pop(0) for _ in range(n_buckets)]))
        self._place = {
            prompts[row]: (group, index)
            for group, prefixes in enumerate(self._groups)
            for index, row in enumerate(prefixes.rows.tolist())
        }

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(prefixes.ids.shape[1] for prefixes in self._groups)

    def batches(self, prompts: Sequence[str], max_rows: int) -> Iterator[tuple[Prefixes, list[int]]]:
        """Prompts gathered, repeats allowed, shortest first and at most `max_rows` in a batch.

        Yields:
            A batch, and the place of each of its rows in `prompts`.
        """
        order = sorted(range(len(prompts)), key=lambda place: self._place[prompts[place]][0])
        for start in range(0, len(order), max_rows):
            part = order[start : start + max_rows]
            chosen: dict[int, list[int]] = {}
            for place in part:
                group, index = self._place[prompts[place]]
                chosen.setdefault(group, []).append(index)
            yield (
                join_prefixes(
                    [
                        self._groups[group].select(torch.tensor(indices, device=self.model.device))
                        for group, indices in chosen.items()
                    ]
                ),
                part,
            )


def kept_bytes(model: Model, prompts: Iterable[str], memory: int) -> int:
    """What the keys and values of different prompts take once they are padded and kept with this budget."""
    lengths = [len(model.token_ids(prompt)) for prompt in prompts]
    sizes = [(len(bucket), max(lengths[i] for i in bucket)) for bucket in prompt_buckets(model, lengths, memory)]
    first = kept = 0
    for n_buckets in _joined(model, sizes, memory):
        group = sizes[first : first + n_buckets]
        kept += kv_bytes(model, sum(n_rows for n_rows, _ in group) * (group[-1][1] - 1))
        first += n_buckets
    return kept


def _joined(model: Model, sizes: Sequence[tuple[int, int]], memory: int) -> list[int]:
    """How many buckets in turn share tensors; sizes are (prompts, longest) of each, shortest first."""
    counts: list[int] = []
    n_rows = most = 0
    for n, longest in sizes:
        n_rows += n
        # Joining copies the group.
        if counts and longest <= most and kv_bytes(model, n_rows * longest) <= memory // 2:
            counts[-1] += 1
        else:
            counts.append(1)
            n_rows, most = n, int(longest * RATIO + SLACK)
    return counts
