"""Prompts encoded once and gathered in every step: kept in few tensors, so that gathering costs little."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from site_interp.model import Model
from site_interp.prefixes import Prefixes, encode_prompts, join_prefixes, kv_bytes

# Prompts that share tensors are padded to one length: at most so much longer than the shortest of them.
RATIO, SLACK = 1.25, 8


class KeptPrefixes:
    """Prompts encoded and kept, found by their text.

    Args:
        model: The model to run.
        prompts: Different texts; they must fit in the budget (`kept_bytes`).
        memory: Budget in bytes.
    """

    def __init__(self, model: Model, prompts: Sequence[str], memory: int) -> None:
        self.model = model
        self._groups: list[Prefixes] = []
        buckets = encode_prompts(model, prompts, memory=memory)
        while buckets:
            group = [buckets.pop(0)]
            n_rows, longest = len(group[0]), group[0].ids.shape[1] * RATIO + SLACK
            while buckets and buckets[0].ids.shape[1] <= longest:
                n_rows += len(buckets[0])
                if kv_bytes(model, n_rows * buckets[0].ids.shape[1]) > memory // 2:  # joining copies the group
                    break
                group.append(buckets.pop(0))
            self._groups.append(join_prefixes(group))
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


def kept_bytes(model: Model, prompts: Iterable[str]) -> int:
    """At most what the keys and values of prompts take once they are padded and kept."""
    lengths = [len(model.token_ids(prompt)) for prompt in prompts]
    return kv_bytes(model, sum(int(n * RATIO) + SLACK for n in lengths))
