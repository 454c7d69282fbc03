"""The eight identities that the package rests on, on tiny models of every family and on two real ones, on every device.

The right side comes from `reference.py`: plain transformers, whole forwards, one prompt at a time.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import (
    Oracle,
    load_oracle,
    reference_ids,
    reference_last_logits,
    reference_loss,
    reference_z,
    reference_z_gradient,
)
from tiny_models import FAMILIES, WORDS, on_every_device, on_every_family
from torch import Tensor

# Largest deviation as a share of the largest value compared: logits reach 6 on the tiny models and 25 on the real one,
# and fp32 rounding grows with them. fp32 keeps 7 digits; three layers lose one or two of them, thirty lose three.
TINY, REAL = 1e-5, 1e-4
# Gradients are sums of terms that cancel: beside float64, 1.3e-5 was the largest deviation on the tiny models.
TINY_GRADIENT = 5e-5
# A backward pass of one or two rows sums over the 49,152 tokens of the vocabulary one after another, which costs one
# more digit (1.2e-5 in that product alone, 7e-7 with more rows); 3e-4 was the largest deviation after thirty layers.
# Gemma sums over 262,144, and its lone BOS is the worst row: 1.7e-3, where plain fp32 itself is 3e-4 off float64.
REAL_GRADIENT = {"smollm2-135m": 1e-3, "gemma-3-270m": 3e-3}
# The error of central differences is the loss's third derivative times the step squared.
CENTRAL_STEP, CENTRAL_TOLERANCE = 1e-2, 2e-2
# Adam divides by the gradient's size, so rounding in a small gradient moves a step of lr visibly.
ALPHA_TOLERANCE = 1e-3
# On the real model rounding adds up in logits of heads that hardly matter: losses and ranks are compared. A step takes
# about 0.25 s there, and three fits run.
LOSS_TOLERANCE, RANK_CORRELATION, REAL_STEPS = 1e-3, 0.999, 400
# Two experts of Mixtral lie at least so far apart in the router's logits, against 1e-6 by rounding.
ROUTER_MARGIN = 0.1

REAL_MODELS = (
    pytest.param("smollm2-135m", marks=pytest.mark.slow),
    pytest.param("gemma-3-270m", marks=pytest.mark.gemma),
)
pytestmark = on_every_device


@dataclass(frozen=True)
class Subject:
    """A model with its oracle, prompts of unequal length (the last has one token), and something to inject in each."""

    model: Any
    oracle: Oracle
    prompts: tuple[str, ...]
    target: Tensor  # [prompt layer head d_head]
    alpha: Tensor  # [prompt layer head]
    answers: Tensor  # [prompt]
    tolerance: float
    gradient_tolerance: float

    @property
    def device(self) -> torch.device:
        return self.oracle.device

    def batches(self) -> list[Any]:
        """Prefixes in buckets of similar length, and all of them joined."""
        from site_interp.prefixes import encode_prompts, join_prefixes

        buckets = encode_prompts(self.model, self.prompts)
        return [*buckets, join_prefixes(buckets)]

    def intervention(self, rows: Tensor) -> Any:
        from site_interp.injection import Intervention

        return Intervention(self.target[rows], self.alpha[rows])

    def equal(self, found: Tensor, expected: Tensor, tolerance: float | None = None) -> None:
        assert found.shape == expected.shape
        apart, size = float((found - expected).abs().max()), float(expected.abs().max())
        share = apart / size
        assert share <= (self.tolerance if tolerance is None else tolerance)

    def padded(self, side: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids, mask, position ids and the last token's column of all prompts in one batch, padded on a side."""
        rows = [self.oracle.ids(prompt) for prompt in self.prompts]
        longest = max(map(len, rows))
        ids = torch.ones(len(rows), longest, dtype=torch.long, device=self.device)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            start = longest - len(row) if side == "left" else 0
            ids[index, start : start + len(row)] = torch.tensor(row, device=self.device)
            mask[index, start : start + len(row)] = 1
        ends = [longest - 1 if side == "left" else len(row) - 1 for row in rows]
        columns = torch.tensor(ends, device=self.device)
        return ids, mask, (mask.cumsum(1) - 1).clamp(min=0), columns


def tiny_prompts() -> tuple[str, ...]:
    """Lengths 4 to 24 in no order; some share a bucket without being equal, some exceed a window of 6."""
    numbers = (3, 1, 20, 2, 9, 8, 5, 1)
    inputs = [" ".join(WORDS[(11 * row + 3 * i) % 50] for i in range(n)) for row, n in enumerate(numbers)]
    return tuple(f"Q: {text}\nA:" for text in inputs)


REAL_PROMPTS = (
    "Q: hot\nA:",
    "Q: hot\nA: cold\n\nQ: early\nA: late\n\nQ: the opposite of everything that is small\nA:",
    "Q: hot\nA: cold\n\nQ: early\nA:",
    "Q: a rather long word\nA:",
    "The capital of France is",
)


@pytest.fixture(scope="module", params=[*FAMILIES, *REAL_MODELS])
def subject(request: pytest.FixtureRequest, tiny_folders: dict[str, Path], device: str) -> Subject:
    from site_interp.model import load_model
    from site_interp.model.bundled import bundled_model_path

    tiny = request.param in FAMILIES
    folder = tiny_folders[request.param] if tiny else bundled_model_path(request.param)
    model, oracle = load_model(folder, device=device, dtype="float32"), load_oracle(folder, device)
    one_token = "" if oracle.ids("") else "A" if tiny else "The"  # a BOS stands for itself
    prompts = (*(tiny_prompts() if tiny else REAL_PROMPTS), one_token)
    assert [len(oracle.ids(prompt)) == 1 for prompt in prompts].index(True) == len(prompts) - 1
    draw = torch.Generator("cpu").manual_seed(5)
    z = torch.stack([reference_z(oracle, prompt, model.n_heads) for prompt in prompts])
    # Other prompts' z, so that values stay where the model knows them, with a little noise for rows of equal z.
    noise = torch.randn(z.shape, generator=draw, device="cpu").to(z.device)
    target = z.roll(1, 0) + 0.1 * z.std() * noise
    alpha = torch.rand(z.shape[:3], generator=draw, device="cpu").to(z.device)
    answers = torch.randint(4, 50, (len(prompts),), generator=draw, device="cpu").to(z.device)
    tolerances = (TINY, TINY_GRADIENT) if tiny else (REAL, REAL_GRADIENT[request.param])
    return Subject(model, oracle, prompts, target, alpha, answers, *tolerances)


@torch.no_grad()
@pytest.mark.parametrize("subject", ["mixtral"], indirect=True)
def test_the_experts_of_every_token_are_chosen_with_a_margin(subject: Subject) -> None:
    # Without it rounding would change experts, and the identities would fail by far more than rounding.
    scores: list[Tensor] = []
    gates = [block.mlp.gate for block in subject.oracle.model.model.layers]
    hooks = [gate.register_forward_hook(lambda _, inputs, routed: scores.append(routed[0])) for gate in gates]
    for row, prompt in enumerate(subject.prompts):
        reference_last_logits(subject.oracle, prompt)
        reference_last_logits(subject.oracle, prompt, subject.target[row], subject.alpha[row])
    for hook in hooks:
        hook.remove()
    ordered, experts = torch.cat(scores).sort(descending=True)
    assert float((ordered[:, 1] - ordered[:, 2]).min()) > ROUTER_MARGIN
    assert set(experts[:, 0].tolist()) == {0, 1, 2, 3}


@torch.no_grad()
def test_one_token_on_the_prefix_equals_a_full_forward_plain_and_injected(subject: Subject) -> None:
    from site_interp.injection import injected_logits

    batches = subject.batches()
    assert any(bool((prefixes.mask == 0).any()) for prefixes in batches[:-1]), "no bucket is padded"
    for prefixes in batches:
        plain, _ = prefixes.run_last()
        injected = injected_logits(prefixes, subject.intervention(prefixes.rows))
        for place, row in enumerate(prefixes.rows.tolist()):
            prompt = subject.prompts[row]
            subject.equal(plain[place, -1], reference_last_logits(subject.oracle, prompt))
            expected = reference_last_logits(subject.oracle, prompt, subject.target[row], subject.alpha[row])
            subject.equal(injected[place], expected)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_users_own_padded_forward_is_injected_at_each_rows_last_token(subject: Subject, side: str) -> None:
    from site_interp.injection import injecting

    ids, mask, positions, columns = subject.padded(side)
    rows = torch.arange(len(ids), device=ids.device)
    with injecting(subject.model, subject.intervention(rows)) as receipt:
        logits = subject.model.bridge(ids, attention_mask=mask, position_ids=positions, return_type="logits")
    assert receipt.columns == columns.tolist()
    for row, prompt in enumerate(subject.prompts):
        expected = reference_last_logits(subject.oracle, prompt, subject.target[row], subject.alpha[row])
        subject.equal(logits[row, columns[row]], expected)


@torch.no_grad()
def test_alpha_zero_and_the_models_own_z_leave_logits_bit_equal(subject: Subject) -> None:
    from site_interp.embedding import head_outputs
    from site_interp.injection import Intervention, injected_logits

    changed = 0
    for prefixes in subject.batches():
        plain, _ = prefixes.run_last()
        own, target = head_outputs(prefixes).to(subject.device), subject.target[prefixes.rows]
        zero, one = torch.zeros_like(own[..., 0]), torch.ones_like(own[..., 0])
        assert torch.equal(injected_logits(prefixes, Intervention(target, zero)), plain[:, -1])
        assert torch.equal(injected_logits(prefixes, Intervention(own, one)), plain[:, -1])
        # The same holds for rows that share a batch with an injected one.
        half = torch.arange(len(prefixes), device=own.device) < len(prefixes) // 2
        mixed = injected_logits(prefixes, Intervention(target, torch.where(half[:, None, None], one, zero)))
        assert torch.equal(mixed[~half], plain[~half, -1])
        changed += int((mixed[half] != plain[half, -1]).any(dim=1).sum())
    assert changed > 0


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_alpha_zero_leaves_a_users_own_forward_bit_equal(subject: Subject, side: str) -> None:
    from site_interp.injection import Intervention, injecting

    ids, mask, positions, _ = subject.padded(side)
    run = {"attention_mask": mask, "position_ids": positions, "return_type": "logits"}
    plain = subject.model.bridge(ids, **run)
    with injecting(subject.model, Intervention(subject.target, torch.zeros_like(subject.alpha))):
        injected = subject.model.bridge(ids, **run)
    assert torch.equal(injected, plain)


@torch.no_grad()
def test_a_batch_of_one_hots_equals_a_loop_over_single_heads(subject: Subject) -> None:
    from site_interp.injection import Intervention, injected_logits

    n_heads, total = subject.model.n_heads, subject.model.n_layers * subject.model.n_heads
    heads = [divmod(index, n_heads) for index in range(0, total, max(1, total // 12))]
    one_hots = torch.zeros(len(heads), subject.model.n_layers, n_heads, device=subject.device)
    for row, (layer, head) in enumerate(heads):
        one_hots[row, layer, head] = 1
    prefixes = subject.batches()[-1]
    place = int((prefixes.rows == 2).nonzero())
    many = prefixes.select(torch.full((len(heads),), place, device=subject.device))
    one = prefixes.select(torch.tensor([place], device=subject.device))
    swept = injected_logits(many, Intervention(subject.target[2:3], one_hots))
    for row in range(len(heads)):
        single = injected_logits(one, Intervention(subject.target[2:3], one_hots[row : row + 1]))
        subject.equal(swept[row], single[0])
        expected = reference_last_logits(subject.oracle, subject.prompts[2], subject.target[2], one_hots[row])
        subject.equal(swept[row], expected)


@torch.no_grad()
def test_selecting_rows_of_a_batch_equals_a_batch_of_the_selected_rows(subject: Subject) -> None:
    from site_interp.injection import injected_logits
    from site_interp.prefixes import encode_prompts

    prefixes = max(subject.batches(), key=len)
    whole = injected_logits(prefixes, subject.intervention(prefixes.rows))
    chosen = torch.tensor([len(prefixes) - 1, 0, len(prefixes) - 1], device=subject.device)
    part = injected_logits(prefixes.select(chosen), subject.intervention(prefixes.rows[chosen]))
    subject.equal(part, whole[chosen])
    by_row = subject.intervention(prefixes.rows).rows(chosen)
    assert torch.equal(injected_logits(prefixes.select(chosen), by_row), part)
    anew = encode_prompts(subject.model, [subject.prompts[row] for row in prefixes.rows[chosen].tolist()])
    for fresh in anew:
        rows = prefixes.rows[chosen][fresh.rows]
        subject.equal(injected_logits(fresh, subject.intervention(rows)), part[fresh.rows])


@torch.no_grad()
def test_a_row_does_not_depend_on_its_neighbours(subject: Subject) -> None:
    from site_interp.injection import Intervention, injected_logits

    prefixes = max(subject.batches(), key=len)
    target, alpha = subject.target[prefixes.rows], subject.alpha[prefixes.rows]
    before = injected_logits(prefixes, Intervention(target, alpha))
    others = torch.arange(len(prefixes), device=subject.device) != 0
    target = torch.where(others[:, None, None, None], target.flip(0) * 3, target)
    alpha = torch.where(others[:, None, None], 1 - alpha, alpha)
    after = injected_logits(prefixes, Intervention(target, alpha))
    subject.equal(after[0], before[0])
    assert not torch.equal(after[1:], before[1:])


def test_the_gradient_of_alpha_equals_central_differences(subject: Subject) -> None:
    from site_interp.injection import Intervention, injected_logits

    prefixes = max(subject.batches(), key=len)
    rows = prefixes.rows
    alpha = (0.2 + 0.6 * subject.alpha[rows]).requires_grad_()  # clear of 0 and 1, where alpha +- h would leave [0, 1]
    logits = injected_logits(prefixes, Intervention(subject.target[rows], alpha))
    loss = torch.nn.functional.cross_entropy(logits, subject.answers[rows], reduction="sum")
    (gradient,) = torch.autograd.grad(loss, alpha)
    row = int(rows[0])
    item = [(subject.prompts[row], int(subject.answers[row]))]
    largest = [divmod(int(i), subject.model.n_heads) for i in gradient[0].abs().flatten().topk(6).indices]
    for layer, head in [*largest, (0, 0), (subject.model.n_layers - 1, 1)]:
        shift = torch.zeros_like(alpha[0])
        shift[layer, head] = CENTRAL_STEP
        above, below = (
            reference_loss(subject.oracle, item, subject.target[row], alpha[0].detach() + sign * shift)
            for sign in (1, -1)
        )
        difference = (above - below) / (2 * CENTRAL_STEP)
        assert abs(float(gradient[0, layer, head]) - difference) <= CENTRAL_TOLERANCE * float(gradient[0].abs().max())


def test_the_gradient_at_alpha_zero_is_target_minus_z_times_the_gradient_of_z(subject: Subject) -> None:
    from site_interp.injection import Intervention, injected_logits

    for prefixes in subject.batches():
        rows = prefixes.rows
        alpha = torch.zeros_like(subject.alpha[rows], requires_grad=True)
        logits = injected_logits(prefixes, Intervention(subject.target[rows], alpha))
        loss = torch.nn.functional.cross_entropy(logits, subject.answers[rows], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, alpha)
        for place, row in enumerate(rows.tolist()):
            prompt, n_heads = subject.prompts[row], subject.model.n_heads
            slope = reference_z_gradient(subject.oracle, prompt, int(subject.answers[row]), n_heads)
            expected = ((subject.target[row] - reference_z(subject.oracle, prompt, n_heads)) * slope).sum(dim=-1)
            subject.equal(gradient[place], expected, subject.gradient_tolerance)


@torch.no_grad()
def test_injected_prefill_and_cached_decoding_equal_full_forwards_injected_at_that_position(subject: Subject) -> None:
    from site_interp.injection import injected_text

    n_tokens, changed = 6, 0
    for prefixes in subject.batches():
        # A stop text that no model writes, so that every row runs to its end.
        texts = injected_text(
            prefixes, subject.intervention(prefixes.rows), max_new_tokens=n_tokens, stop="nothing writes this"
        )
        plain = injected_text(prefixes, max_new_tokens=n_tokens, stop="nothing writes this")
        changed += texts != plain
        for place, row in enumerate(prefixes.rows.tolist()):
            prompt = subject.prompts[row]
            ids = reference_ids(subject.oracle, prompt, n_tokens, subject.target[row], subject.alpha[row])
            assert texts[place] == text_until_stop(subject, ids)
            assert plain[place] == text_until_stop(subject, reference_ids(subject.oracle, prompt, n_tokens))
    assert changed > 0


def text_until_stop(subject: Subject, ids: list[int]) -> str:
    ends = [place for place, index in enumerate(ids) if index in subject.model.stop_ids]
    return str(subject.oracle.tokenizer.decode(ids[: ends[0]] if ends else ids, skip_special_tokens=True))


@pytest.fixture(scope="module")
def tasks() -> tuple[Any, ...]:
    """Three tasks over the tiny vocabulary with other inputs and answers each."""
    from site_interp.tasks import Example, Task

    def examples(shift: int) -> tuple[Example, ...]:
        inputs = [" ".join(WORDS[(start + 7 * i) % 50] for i in range(1 + (start + shift) % 9)) for start in range(20)]
        return tuple(Example(text, (WORDS[(start * 3 + shift) % 50],)) for start, text in enumerate(inputs))

    return tuple(Task(f"file/{n}", examples(n)[:12], examples(n)[12:], ()) for n in (1, 4, 20))


def fitted(model: Any, tasks: tuple[Any, ...], embeddings: list[Any], settings: Any) -> list[Any]:
    from site_interp.fit_plan import FitRun
    from site_interp.fitting import fit_selections
    from site_interp.tasks import Labelled

    runs = [FitRun(e, Labelled(t), seed) for seed, (t, e) in enumerate(zip(tasks, embeddings, strict=True))]
    return fit_selections(model, runs, settings=settings)


def fitted_alone(model: Any, tasks: tuple[Any, ...], embeddings: list[Any], settings: Any) -> list[Any]:
    from site_interp.fitting import fit_selection

    pairs = enumerate(zip(tasks, embeddings, strict=True))
    return [fit_selection(model, task, e, seed=seed, settings=settings) for seed, (task, e) in pairs]


@on_every_family
def test_runs_fitted_in_one_batch_equal_each_fitted_alone(model: Any, tasks: tuple[Any, ...]) -> None:
    from site_interp.embedding import embed_task
    from site_interp.selection import FitSettings

    embeddings = [embed_task(model, task, n_prompts=4, n_shots=2, seed=seed) for seed, task in enumerate(tasks)]
    settings = FitSettings(n_steps=20, batch_size=3, validate_every=5, n_valid=8, checkpoint="last")
    together = fitted(model, tasks, embeddings, settings)
    for one, alone in zip(together, fitted_alone(model, tasks, embeddings, settings), strict=True):
        assert float((one.alpha - alone.alpha).abs().max()) <= ALPHA_TOLERANCE
        assert one.trace.train_loss == pytest.approx(alone.trace.train_loss, abs=ALPHA_TOLERANCE)
        assert one.trace.valid_loss == pytest.approx(alone.trace.valid_loss, abs=ALPHA_TOLERANCE)
    apart = [float((a.alpha - b.alpha).abs().max()) for a, b in pairwise(together)]
    assert min(apart) > 0.1, "the runs are too alike to tell whether they were mixed up"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REAL_MODELS)
def test_two_real_runs_fitted_in_one_batch_equal_each_fitted_alone(name: str, device: str) -> None:
    from site_interp.embedding import embed_task
    from site_interp.model import load_model
    from site_interp.selection import FitSettings
    from site_interp.tasks import load_task

    real_model = load_model(name, device=device, dtype="float32")
    tasks = (load_task("antonym"), load_task("country-capital"))
    embeddings = [embed_task(real_model, task, n_prompts=8, n_shots=5) for task in tasks]
    settings = FitSettings(n_steps=REAL_STEPS, validate_every=REAL_STEPS, n_valid=20, checkpoint="last")
    together = fitted(real_model, tasks, embeddings, settings)
    for one, alone in zip(together, fitted_alone(real_model, tasks, embeddings, settings), strict=True):
        assert one.trace.valid_loss == pytest.approx(alone.trace.valid_loss, abs=LOSS_TOLERANCE)
        ranks = torch.stack([logits.flatten().argsort().argsort().double() for logits in (one.logits, alone.logits)])
        assert float(torch.corrcoef(ranks)[0, 1]) > RANK_CORRELATION
        assert alone.trace.valid_loss[-1] < alone.trace.train_loss[0]
