"""Exemplars are the nearest of the bank, never the query itself, and equal ones come in their order."""

import random

import pytest
import torch

from site_interp.baselines import TRIGRAMS, Similarity
from site_interp.errors import UserError
from site_interp.exemplars.retrieval import (
    SCAFFOLD_TANIMOTO,
    TANIMOTO,
    fixed_similarity,
    random_similarity,
    retrieve,
)
from site_interp.tasks.molecules import fingerprint

LENGTHS = Similarity("lengths", lambda bank: lambda text: [-abs(len(text) - len(other)) for other in bank])


def test_the_nearest_come_first_and_equal_ones_in_the_order_of_the_bank() -> None:
    bank = ["aaaa", "bb", "c", "dd", "eeeeeeee"]
    found = retrieve(LENGTHS, bank, ["xx", "yyyyy"], 3)
    assert found.places.tolist() == [[1, 3, 2], [0, 1, 3]]
    assert found.similarity.tolist() == [[0.0, 0.0, -1.0], [-1.0, -3.0, -3.0]]
    assert bool(found.present.all())


def test_neither_the_query_itself_nor_its_double_is_its_exemplar() -> None:
    bank = ["ab", "cd", "ab", "ef"]
    found = retrieve(LENGTHS, bank, bank, 2, own=range(4))
    assert found.places.tolist() == [[1, 3], [0, 2], [1, 3], [0, 1]]
    assert retrieve(LENGTHS, ["aa", "bb"], ["xx"], 2, own=[0]).places[0, 0] == 1


def test_a_bank_with_too_few_examples_gives_those_it_has() -> None:
    found = retrieve(LENGTHS, ["aa", "b"], ["cc", "b"], 3)
    assert found.present.tolist() == [[True, True, False], [True, False, False]]
    assert found.places[1].tolist() == [0, 0, 0]
    assert torch.equal(found.similarity[~found.present], torch.zeros(3))


def test_the_search_is_exact() -> None:
    chooser = random.Random(0)
    words = ["".join(chooser.choices("abcde", k=chooser.randint(3, 9))) for _ in range(60)]
    bank, queries = sorted(set(words[:40])), words[40:]
    found = retrieve(TRIGRAMS, bank, queries, 4)
    similarities = TRIGRAMS.against(bank)
    for row, query in enumerate(queries):
        values = [(-value, place) for place, value in enumerate(similarities(query)) if bank[place] != query]
        assert found.places[row].tolist() == [place for _, place in sorted(values)[:4]]


def test_molecules_are_alike_as_their_fingerprints_are() -> None:
    bank = ["CCO\nq", "CCN\nq", "c1ccccc1C\nq", "CCCO\nq"]
    found = retrieve(TANIMOTO, bank, ["CCCCO\nq"], 2)
    assert found.places.tolist() == [[3, 0]]
    bits, other = (set(fingerprint(smiles).GetOnBits()) for smiles in ("CCCCO", "CCCO"))
    assert float(found.similarity[0, 0]) == pytest.approx(len(bits & other) / len(bits | other))


def test_scaffolds_are_alike_whatever_hangs_on_them() -> None:
    bank = ["CCCCCCc1ccccc1\nq", "Cc1ccncc1\nq", "CCO\nq"]
    found = retrieve(SCAFFOLD_TANIMOTO, bank, ["OC(=O)c1ccccc1\nq"], 2)
    assert found.places[0, 0] == 0
    assert float(found.similarity[0, 0]) == 1.0


def test_controls_do_not_look_at_the_texts() -> None:
    bank, queries = [f"b{n}" for n in range(30)], [f"q{n}" for n in range(20)]
    drawn, again, other = (retrieve(random_similarity(s), bank, queries, 3).places for s in (0, 0, 1))
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, other)
    assert len({tuple(row) for row in drawn.tolist()}) > 15
    counts = torch.bincount(retrieve(random_similarity(0), bank, [f"q{n}" for n in range(2000)], 3).places.flatten())
    assert 140 < int(counts.min()) < int(counts.max()) < 260, "200 are expected of each"
    fixed = retrieve(fixed_similarity(0), bank, queries, 3).places
    assert len({tuple(row) for row in fixed.tolist()}) == 1
    assert not torch.equal(fixed, retrieve(fixed_similarity(1), bank, queries, 3).places)


@pytest.mark.parametrize(("bank", "k", "told"), [([], 2, "the bank is empty"), (["a"], 0, "retrieve 0 exemplars")])
def test_nothing_to_retrieve_is_refused(bank: list[str], k: int, told: str) -> None:
    with pytest.raises(UserError, match=told):
        retrieve(LENGTHS, bank, ["a"], k)


def test_a_query_that_is_no_molecule_is_refused() -> None:
    with pytest.raises(UserError, match="Cannot read the molecule 'C\\(C\\)\\(C\\)\\(C\\)\\(C\\)C'"):
        retrieve(TANIMOTO, ["CCO"], ["C(C)(C)(C)(C)C"], 1)
