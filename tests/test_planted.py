"""On a model whose heads are set by hand every analysis gives the answer that is known in advance."""

from pathlib import Path

import numpy as np
import pytest
import torch
from planted_model import CARRIER, planted_task, save_planted_model

from site_interp.adapter import Adapter
from site_interp.baselines import SITE
from site_interp.embedding import embed_task
from site_interp.experiments.overlap import catalogue, overlap, seed_stability
from site_interp.experiments.transfer import TransferSettings, measure_column
from site_interp.model import Model, load_model, token_text
from site_interp.patching import (
    SHARES,
    attribute_heads,
    head_writes,
    icl_ablation_curves,
    n_of_share,
    necessity_curves,
    rank_heads,
    sufficiency_curves,
    sweep_heads,
)
from site_interp.selection import FitSettings
from site_interp.tasks import Labelled

TASKS = {"first-0": ("first", 0), "first-4": ("first", 4), "second-2": ("second", 2)}
QUICK = FitSettings(n_steps=20, batch_size=2, validate_every=5, n_valid=6)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(str(save_planted_model(tmp_path_factory.mktemp("planted"))))


@pytest.fixture(scope="module")
def adapters(planted: Model) -> dict[str, Adapter]:
    method = SITE(n_prompts=4, n_shots=3, fitting=QUICK)
    return {name: method.fit(planted, Labelled(planted_task(*which)), 0) for name, which in TASKS.items()}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("kind", ["zero_shot", "shuffled"])
def test_the_sweep_finds_the_planted_head_and_no_other(planted: Model, name: str, kind: str) -> None:
    group, answer = TASKS[name]
    task = planted_task(group, answer)
    embedding = embed_task(planted, task, n_prompts=4, n_shots=3)
    effects = sweep_heads(planted, task, embedding, kind=kind, n_prompts=5, progress=lambda _: None).mean
    if kind == "shuffled":  # labels that are all the same cannot be shuffled: nothing is left for a head to mend
        assert float(effects.abs().max()) < 0.05
        return
    assert rank_heads(effects)[0] == CARRIER[group]
    assert float(effects[CARRIER[group]]) > 1
    effects[CARRIER[group]] = 0
    assert float(effects.abs().max()) < 0.05


@pytest.mark.parametrize("name", TASKS)
def test_attribution_finds_the_planted_head(planted: Model, name: str) -> None:
    group, answer = TASKS[name]
    task = planted_task(group, answer)
    embedding = embed_task(planted, task, n_prompts=4, n_shots=3)
    slopes = attribute_heads(planted, task, embedding, n_prompts=5, progress=lambda _: None).mean
    assert rank_heads(slopes)[0] == CARRIER[group]
    assert float(slopes[CARRIER[group]]) > 1
    slopes[CARRIER[group]] = 0
    assert float(slopes.abs().max()) < 0.05


@pytest.mark.parametrize("name", TASKS)
def test_the_fit_ranks_the_planted_head_first(adapters: dict[str, Adapter], name: str) -> None:
    assert adapters[name].selection.ranking()[0] == CARRIER[TASKS[name][0]]


@pytest.mark.parametrize("name", TASKS)
def test_the_planted_head_alone_is_enough_and_all_others_are_not(
    planted: Model, adapters: dict[str, Adapter], name: str
) -> None:
    task, adapter = planted_task(*TASKS[name]), adapters[name]
    top = adapter.selection.ranking()
    found = sufficiency_curves(planted, task, adapter, {"top alpha": top, "bottom alpha": top[::-1]}, n_test=6)
    best, worst = ([point.interval("first_token").value for point in curve.points] for curve in found.curves)
    assert best == [0.0] + [1.0] * (len(SHARES) - 1), "8 heads: one is the smallest set, and it is the planted one"
    assert worst == [0.0] * (len(SHARES) - 1) + [1.0]
    assert [point.k for point in found.curves[0].points] == [n_of_share(share, 8) for share in SHARES]
    drawn = [(draw.k, draw.interval("first_token").value) for draw in found.draws]
    assert {value for _, value in drawn} == {0.0, 1.0}, "a random set has the head or has it not"
    half = [value for k, value in drawn if k == 4]
    assert 0.2 < np.mean(half) < 0.8, "4 of 8 heads hold the planted one half of the time"
    # Trapezoids: the rise from 0 to 1 lies between the shares 0 and 1 %.
    assert found.curves[0].area("first_token").value == pytest.approx(1 - 0.005)
    assert found.curves[1].area("first_token").value == pytest.approx(0.30 / 2)


@pytest.mark.parametrize("name", TASKS)
def test_the_adapter_fails_without_the_planted_head_and_not_without_others(
    planted: Model, adapters: dict[str, Adapter], name: str
) -> None:
    task, adapter = planted_task(*TASKS[name]), adapters[name]
    top = adapter.selection.ranking()
    ranked = {"top alpha": top, "bottom alpha": top[::-1]}
    found = necessity_curves(planted, task, adapter, ranked, n_random=0, n_test=6)
    without_top, without_bottom = (
        [point.interval("first_token").value for point in curve.points] for curve in found.curves
    )
    assert without_top == [1.0] + [0.0] * (len(SHARES) - 1)
    assert without_bottom == [1.0] * (len(SHARES) - 1) + [0.0]
    assert not found.draws


@pytest.mark.parametrize("to", ["mean", "zero"])
@pytest.mark.parametrize("name", TASKS)
def test_in_context_learning_uses_the_planted_head(
    planted: Model, adapters: dict[str, Adapter], name: str, to: str
) -> None:
    task, adapter = planted_task(*TASKS[name]), adapters[name]
    ranked = {"top alpha": adapter.selection.ranking()}
    found = icl_ablation_curves(planted, task, adapter, ranked, to=to, n_random=0, n_test=6)
    assert found.question == f"icl_ablation_{to}"
    values = [point.interval("first_token").value for point in found.curves[0].points]
    assert values == [1.0] + [0.0] * (len(SHARES) - 1)
    assert set(found.references) == {"3-shot"}


def test_heads_transfer_between_tasks_that_share_them_and_to_no_other(
    planted: Model, adapters: dict[str, Adapter]
) -> None:
    tasks = {name: planted_task(*which) for name, which in TASKS.items()}
    sources = {tasks[name].name: adapter for name, adapter in adapters.items()}
    only = {(0, 1): 1.0, (1, 2): 1.0}
    joint = torch.zeros(2, 4)
    for head, value in only.items():
        joint[head] = value
    for task in tasks.values():
        column = measure_column(planted, task, sources, joint=joint, settings=TransferSettings(n_test=6, share=12.5))
        assert column.k == 1
        group = task.name.removeprefix("file/").split("-")[0]
        for row in column.rows:
            value = np.mean(row.scores["first_token"])
            if row.kind == "top_k":
                assert value == float(row.source.startswith(f"file/{group}")), (row.source, task.name)
            if row.kind == "counterpart":  # the embedding of another task says another word
                assert value == float(row.source == task.name)
            if row.kind == "joint" or (row.kind == "soft" and row.source == task.name):
                assert value == 1.0
        assert {row.kind for row in column.rows} == {"soft", "top_k", "counterpart", "shuffled", "joint"}


def test_tasks_of_one_group_overlap_and_others_do_not(adapters: dict[str, Adapter]) -> None:
    found = overlap(list(adapters.values()), k=1)
    assert found.matrix("jaccard").tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert found.chance.jaccard == pytest.approx(1 / 8), "one of eight heads"
    by_pair = {(pair.first[5:], pair.second[5:]): pair for pair in found.pairs}
    assert by_pair["first-0", "first-4"].p_value == pytest.approx(1 / 8)
    assert by_pair["first-0", "second-2"].p_value == pytest.approx(1)
    assert by_pair["first-0", "first-4"].p_corrected == pytest.approx(3 / 8)
    assert sorted(found.clustering.merges[0][:2].tolist()) == [0, 1], "the two of one group come together first"
    assert found.clustering.merges[0][2] == 0
    order = found.clustering.order
    assert abs(order.index(0) - order.index(1)) == 1


def test_seeds_agree_on_the_planted_head(planted: Model) -> None:
    method, task = SITE(n_prompts=4, n_shots=3, fitting=QUICK), planted_task("first", 0)
    several = [method.fit(planted, Labelled(task), seed) for seed in (0, 1)]
    found = seed_stability(several, k=1)
    assert (found.n_seeds, found.jaccard, found.chance) == (2, 1.0, pytest.approx(1 / 8))


@pytest.mark.parametrize("name", TASKS)
def test_the_planted_head_writes_its_answer(planted: Model, adapters: dict[str, Adapter], name: str) -> None:
    group, answer = TASKS[name]
    word = planted_task(group, answer).train[0].answer
    (writes,) = head_writes(planted, adapters[name].embedding.mean, [CARRIER[group]], n_tokens=3)
    assert (writes.layer, writes.head) == CARRIER[group]
    assert writes.promoted[0][0] == f" {word}"
    assert writes.norm > 1
    (silent,) = head_writes(planted, adapters[name].embedding.mean, [(0, 0)], n_tokens=3)
    assert silent.norm == 0
    assert token_text(planted, 8) == " aa"


def test_the_catalogue_lists_the_planted_heads_first(planted: Model, adapters: dict[str, Adapter]) -> None:
    zeros = np.zeros((2, 4))
    entries = catalogue(list(adapters.values()), zeros, zeros + 0.25, {"format": zeros + 0.5})
    assert len(entries) == 8
    assert (entries[0].layer, entries[0].head) == (0, 1), "two tasks use it"
    assert entries[0].alphas.keys() == {f"file/{name}" for name in TASKS}
    assert (entries[0].previous, entries[0].looks_at) == (0.25, {"format": 0.5})


def test_the_model_file_is_what_it_says(tmp_path: Path) -> None:
    """In a zero-shot prompt no head says anything that matters, so the last token is repeated."""
    model = load_model(str(save_planted_model(tmp_path / "again")))
    ids = torch.tensor([model.token_ids("Q: aa ab\nA:")])
    logits, _ = model.forward(ids, torch.ones_like(ids), n_logits=1)
    assert int(logits[0, -1].argmax()) == int(ids[0, -1])
