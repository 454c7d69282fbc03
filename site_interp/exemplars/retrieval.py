"""Which examples of the bank stand nearest to a query: exact, ties by their place, a query's own example left out.

A similarity is that of the neighbours' vote (`baselines.Similarity`), so both retrieve alike. Search is exhaustive: the
banks here hold thousands of examples, where it is a matter of milliseconds; for millions an index such as FAISS belongs
behind the same function.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from site_interp.baselines import Similarity
from site_interp.errors import UserError
from site_interp.tasks.molecules import fingerprint_similarities, scaffold, smiles_of


@dataclass(frozen=True)
class Neighbours:
    """The exemplars of each query, the nearest first.

    Args:
        places: Where each stands in the bank; 0 where there is none.
        similarity: With the query; 0 where there is none.
        present: Which of them there are: a bank may have fewer than were asked for.
    """

    places: Int[Tensor, "query exemplar"]
    similarity: Float[Tensor, "query exemplar"]
    present: Bool[Tensor, "query exemplar"]


def retrieve(
    similarity: Similarity, bank: Sequence[str], queries: Sequence[str], k: int, *, own: Sequence[int | None] = ()
) -> Neighbours:
    """The k examples of the bank most like each query.

    An example whose input is the query's is never its exemplar: in training it is the query itself, and a double of it
    would give the answer away.

    Args:
        similarity: How alike inputs are.
        bank: Inputs of the training examples.
        queries: Inputs that exemplars are wanted for.
        k: Exemplars for each.
        own: For each query its place in the bank, or None; by default none stands there.

    Raises:
        UserError: An empty bank, or k below 1.

    Example:
        retrieve(TRIGRAMS, [e.input for e in task.train], [e.input for e in task.test], 5)
    """
    if not bank:
        raise UserError("Cannot retrieve exemplars: the bank is empty. Give it training examples.")
    if k < 1:
        raise UserError(f"Cannot retrieve {k} exemplars. Give a whole number of 1 or more.")
    similarities = similarity.against(bank)
    places = torch.zeros(len(queries), k, dtype=torch.long)
    values, present = torch.zeros(len(queries), k), torch.zeros(len(queries), k, dtype=torch.bool)
    for row, query in enumerate(queries):
        found = np.asarray(similarities(query), dtype=np.float64)
        left_out = [place for place, text in enumerate(bank) if text == query]
        if own and own[row] is not None:
            left_out.append(int(own[row]))  # type: ignore[arg-type]
        found[left_out] = -np.inf
        nearest = [int(place) for place in np.argsort(-found, kind="stable")[:k] if found[place] > -np.inf]
        n = len(nearest)
        places[row, :n], present[row, :n] = torch.tensor(nearest, dtype=torch.long), True
        values[row, :n] = torch.from_numpy(found[nearest]).float()
    return Neighbours(places, values, present)


def _whole(texts: Sequence[str]) -> Callable[[str], Sequence[float]]:
    similarities = fingerprint_similarities([smiles_of(text) for text in texts])
    return lambda text: similarities(smiles_of(text))


def _scaffolds(texts: Sequence[str]) -> Callable[[str], Sequence[float]]:
    similarities = fingerprint_similarities([scaffold(smiles_of(text)) for text in texts], counts=True)
    return lambda text: similarities(scaffold(smiles_of(text)))


TANIMOTO = Similarity("tanimoto", _whole)
"""Tanimoto similarity of Morgan fingerprints of radius 2, 2,048 bits, of whole molecules."""

SCAFFOLD_TANIMOTO = Similarity("scaffold_tanimoto", _scaffolds)
"""The same of Murcko scaffolds, with counts, as ChemLLMBench retrieves; molecules without rings are all alike."""


def random_similarity(seed: int) -> Similarity:
    """A control: other exemplars for every query, whatever stands in them."""
    return Similarity(f"random{seed}", lambda bank: lambda text: [_hashed(seed, text, other) for other in bank])


def fixed_similarity(seed: int) -> Similarity:
    """A control: the same exemplars for every query."""
    return Similarity(f"fixed{seed}", lambda bank: lambda _: [_hashed(seed, "", other) for other in bank])


def _hashed(seed: int, *texts: str) -> float:
    """A number in [0, 1) that depends on the seed and the texts alone."""
    digest = hashlib.sha256("\x1f".join([str(seed), *texts]).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


__all__ = ["SCAFFOLD_TANIMOTO", "TANIMOTO", "Neighbours", "fixed_similarity", "random_similarity", "retrieve"]
