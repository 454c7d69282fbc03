"""The self-test: it passes on sound models, and each check fails when the thing it is about is broken on purpose."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import on_every_device
from torch import Tensor
from upper_fixtures import model_state

from site_interp.doctor import Check, check_model, describe_machine, n_checks
from site_interp.doctor.check import ask
from site_interp.doctor.examination import QUESTIONS
from site_interp.doctor.subject import Subject
from site_interp.errors import UserError
from site_interp.injector import Injector
from site_interp.model import Model, load_model
from site_interp.model.branches import _Grow
from site_interp.model.model import Call
from site_interp.prefixes import Prefixes

WINDOW = 40  # tokens; no prompt of the other checks is as long


def asked(model: Model, *names: str) -> dict[str, Check]:
    """Only the checks of these names, or all."""
    subject = Subject(model)
    return {q.name: ask(q, subject) for q in QUESTIONS if not names or q.name in names}


@on_every_device
def test_a_sound_model_passes_every_check_and_is_left_as_it_was(model: Model) -> None:
    before = model_state(model)
    checks = check_model(model)
    assert model_state(model) == before
    assert len(checks) == n_checks()
    has_window = json.loads((Path(model.name) / "config.json").read_text()).get("sliding_window") == 6
    assert [check.name for check in checks if check.status == "skipped"] == ["sliding window"] * (not has_window)
    for check in checks:
        if check.status != "skipped":
            assert (check.status, check.tolerance) in (("pass", 1e-5), ("pass", 0)), check
            assert check.deviation is not None
            assert check.deviation <= 1e-5
        if check.name == "sliding window":
            assert ("window 6" in check.detail) == has_window


@dataclass(frozen=True)
class Breakage:
    """How to break something, the checks that must fail then, and some that must not."""

    apply: Callable[[pytest.MonkeyPatch], None]
    fail: list[str]
    hold: list[str]
    detail: str = ""  # in that of the first one


def forward_as(change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Put `change(forward, ids, mask, positions, cache, **rest)` in place of the bridge's forward."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        from transformer_lens.model_bridge import TransformerBridge

        forward = TransformerBridge.forward

        def changed(
            self: Any, ids: Any, *, attention_mask: Any, position_ids: Any, past_key_values: Any = None, **rest: Any
        ) -> Any:
            def run(ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Any:
                return forward(self, ids, attention_mask=mask, position_ids=positions, past_key_values=cache, **rest)

            return change(run, ids, attention_mask, position_ids, past_key_values)

        monkeypatch.setattr(TransformerBridge, "forward", changed)

    return apply


def without_mask(run: Any, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
    return run(ids, torch.ones_like(mask), positions, cache)


def neighbours_leak(run: Any, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
    logits, cache = run(ids, mask, positions, cache)
    return logits + 0.01 * (logits.roll(1, 0) - logits), cache


def padding_moves_to_the_left(run: Any, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
    """Logits of a right-padded row come back some columns further right."""
    n_pads = (mask.flip(1).cumsum(1) == 0).sum(1).tolist()
    rolled = [torch.stack([row.roll(n) for row, n in zip(rows, n_pads, strict=True)]) for rows in (ids, positions)]
    mask = torch.stack([row.roll(n) for row, n in zip(mask, n_pads, strict=True)])
    return run(rolled[0], mask, rolled[1], cache)


def cache_is_lost(run: Any, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
    return run(ids, mask if cache is None else mask[:, -ids.shape[1] :], positions, cache)


def not_a_number(run: Any, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
    logits, cache = run(ids, mask, positions, cache)
    return logits * float("nan"), cache


def hook_as(change: Callable[[Tensor], Tensor]) -> Callable[[pytest.MonkeyPatch], None]:
    """Change what every layer's injection hook returns."""

    def changed(make: Any, self: Injector, layer: int) -> Any:
        def hook(z: Tensor) -> Tensor | None:
            made = make(self, layer)(z)
            return None if made is None else change(made)

        return hook

    return method_as(Injector, "hook", changed)


def method_as(owner: type, name: str, change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Put `change(method, self, ...)` in place of a method."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, *args, **rest: change(method, self, *args, **rest))

    return apply


def grow_from_the_last(_grow: Any, self: _Grow, _layer: Any, args: tuple[Any, ...]) -> Any:
    hidden, *others = args
    return (torch.cat([hidden, hidden[:, -1:].expand(-1, self.n, -1)], dim=1), *others)


def scaled_logits(run_last: Any, self: Prefixes, *args: Any, **rest: Any) -> Any:
    logits, cache = run_last(self, *args, **rest)
    return 1.001 * logits, cache


def one_column_early(last_real_column: Any, self: Injector, call: Call) -> Any:
    return (last_real_column(self, call) - 1).clamp(min=0)


def silent_after(after: Any, self: Injector) -> None:
    self.n_fired = [1] * len(self.n_fired)
    after(self)


def without_layer_one(hook: Any, self: Injector, layer: int) -> Any:
    return hook(self, layer) if layer != 1 else lambda z: self.n_fired.__setitem__(1, self.n_fired[1] + 1)


def joined_at_the_wrong_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter prefixes are padded after their keys and values instead of before."""
    from site_interp.model import caches

    def padded(values: Any, n_rows: int, like: Tensor) -> Tensor:
        if values is None:
            return like.new_zeros(n_rows, *like.shape[1:])
        return torch.nn.functional.pad(values, (0, 0, 0, like.shape[-2] - values.shape[-2]))

    monkeypatch.setattr(caches, "_padded", padded)


LEFT, RIGHT, BATCH = "left-padded = unpadded", "right-padded = unpadded", "batch = single"
CACHE, PREFIX, INJECTED, JOINED = "cache on = off", "prefix path", "prefix path, injected", "prefixes joined"
ZERO, ONE, OTHER = "alpha 0 = clean", "alpha 1 = replaced", "alpha 1 = other prompt"
RECEIPT, PLAIN = "injection receipt", "plain transformers"
BRANCHES = "branches = rows"
BREAKAGES = {
    "the mask is ignored": Breakage(forward_as(without_mask), [LEFT, CACHE], [BATCH, RIGHT]),
    "rows leak into each other": Breakage(forward_as(neighbours_leak), [BATCH, LEFT, RIGHT], [PLAIN]),
    "right padding moves": Breakage(forward_as(padding_moves_to_the_left), [RIGHT], [BATCH, LEFT]),
    "the cache is lost": Breakage(
        forward_as(cache_is_lost),
        ["load", CACHE, PREFIX, INJECTED, JOINED],
        ["BOS", BATCH, LEFT, RIGHT, RECEIPT, PLAIN],
        "logits with the key/value cache differ",
    ),
    "logits are not finite": Breakage(
        forward_as(not_a_number), [BATCH, CACHE, ZERO, PLAIN], ["BOS"], "ValueError: The model's values are not finite."
    ),
    "prefixes give other logits": Breakage(
        method_as(Prefixes, "run_last", scaled_logits), [PREFIX, INJECTED, JOINED], [CACHE, ZERO]
    ),
    "prefixes are joined at the wrong end": Breakage(joined_at_the_wrong_end, [JOINED], [PREFIX, INJECTED]),
    "the injection is not exact": Breakage(hook_as(lambda z: z * (1 + 1e-6)), [ZERO, ONE], [RECEIPT]),
    "a layer is skipped": Breakage(
        method_as(Injector, "hook", without_layer_one),
        [ONE, OTHER],
        [ZERO, INJECTED, RECEIPT],
        "layers [1] keep another z",
    ),
    "the wrong token is injected": Breakage(
        method_as(Injector, "_last_real_column", one_column_early), [RECEIPT, OTHER, INJECTED], [ZERO, ONE]
    ),
    "the receipt never complains": Breakage(
        method_as(Injector, "after", silent_after), [RECEIPT], [ONE], "unnoticed: a layer injected twice"
    ),
    "no injection is no error": Breakage(
        method_as(Injector, "finish", lambda finish, self: None),
        [RECEIPT],
        [ONE],
        "unnoticed: no forward, a position never reached",
    ),
    "a branch begins as another branch": Breakage(
        method_as(_Grow, "__call__", grow_from_the_last),
        [BRANCHES],
        [RECEIPT, PLAIN],
        "2 of ",
    ),
    "a BOS too many": Breakage(
        method_as(Model, "token_ids", lambda token_ids, self, text: [3, *token_ids(self, text)]),
        ["BOS"],
        ["load", BATCH, PLAIN],
        "at most 1 BOS in each; wrong for 'Q: ",
    ),
}


@pytest.mark.parametrize("what", BREAKAGES)
def test_what_is_broken_fails_its_check_and_no_unrelated_one(
    what: str, llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakage = BREAKAGES[what]
    fail, hold = breakage.fail, breakage.hold
    breakage.apply(monkeypatch)
    found = asked(llama, *fail, *hold)
    expected = dict.fromkeys(fail, "fail") | dict.fromkeys(hold, "pass")
    assert {name: check.status for name, check in found.items()} == expected
    assert breakage.detail in found[fail[0]].detail


def test_a_second_bos_fails_its_check_where_the_tokenizer_adds_one(
    tiny_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gemma = load_model(tiny_folders["gemma3"], device="cpu")
    BREAKAGES["a BOS too many"].apply(monkeypatch)
    check = asked(gemma, "BOS")["BOS"]
    assert check.status == "fail"
    assert "at most 2 BOS" in check.detail


def test_a_cache_that_breaks_beyond_the_window_fails_that_check_alone(
    tiny_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wide"
    shutil.copytree(tiny_folders["gemma3"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "sliding_window": WINDOW}))
    wide = load_model(folder, device="cpu")
    names = ("sliding window", "cache on = off", "prefix path", "plain transformers")
    assert {check.status for check in asked(wide, *names).values()} == {"pass"}

    def forgets_the_window(run: Any, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
        beyond = cache is not None and mask.shape[1] > WINDOW
        return run(ids, mask[:, -ids.shape[1] :] if beyond else mask, positions, cache)

    forward_as(forgets_the_window)(monkeypatch)
    assert [name for name, check in asked(wide, *names).items() if check.status == "fail"] == ["sliding window"]


def test_a_window_that_no_affordable_prompt_exceeds_is_skipped_with_the_reason(
    tiny_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_interp.doctor.subject.LONGEST_PROMPT", 6)
    gemma = load_model(tiny_folders["gemma3"], device="cpu")
    check = asked(gemma, "sliding window")["sliding window"]
    assert check.status == "skipped"
    assert "no prompt beyond 6 tokens was run" in check.detail


def test_weights_that_are_not_those_of_the_files_fail_against_plain_transformers(
    tiny_folders: dict[str, Path],
) -> None:
    altered = load_model(tiny_folders["llama"], device="cpu")
    with torch.no_grad():
        next(iter(altered.inner.parameters())).mul_(1.01)
    found = asked(altered, "plain transformers", "BOS", "cache on = off")
    assert [name for name, check in found.items() if check.status == "fail"] == ["plain transformers"]


def test_a_hook_in_the_wrong_place_fails_the_check_at_load(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "hook_z", lambda self, layer: f"blocks.{layer}.hook_resid_post")
    found = asked(llama, "load", "BOS", "cache on = off")
    assert [check.status for check in found.values()] == ["fail", "pass", "pass"]
    assert "hook_z of layer 0 has shape" in found["load"].detail


def test_an_exception_is_the_failure_of_its_check_and_hides_no_other(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("no such thing\nand a second line")

    monkeypatch.setattr("site_interp.doctor.forwards.plain_token_ids", broken)
    checks = check_model(llama)
    assert len(checks) == n_checks()
    (failed,) = (check for check in checks if check.status == "fail")
    assert (failed.name, failed.deviation) == ("BOS", None)
    assert failed.detail.startswith("KeyError: ")
    assert "\n" not in failed.detail


def test_a_models_objects_without_files_skip_what_needs_them(tiny_folders: dict[str, Path]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    inner = AutoModelForCausalLM.from_pretrained(tiny_folders["llama"], dtype=torch.float32)
    inner.config._name_or_path = ""
    with load_model(inner, tokenizer=AutoTokenizer.from_pretrained(tiny_folders["llama"])) as model:
        found = asked(model, "BOS", "prefix path", "plain transformers")
    assert [check.status for check in found.values()] == ["skipped", "pass", "skipped"]
    assert "Give load_model a name or folder" in found["plain transformers"].detail


def test_the_full_self_test_counts_flips_and_ties_without_failing(llama: Model) -> None:
    from site_interp.doctor.precision import Flips, count_flips

    checks = {check.name: check for check in check_model(llama, full=True)}
    assert len(checks) == n_checks(full=True)
    assert checks["16-bit flips"].status == "pass"
    assert checks["16-bit flips"].tolerance is None
    assert "of 48 prompts have another most likely token in bfloat16" in checks["16-bit flips"].detail
    assert (checks["device = CPU"].status, checks["device = CPU"].detail) == ("skipped", "the model is on the CPU")
    wide = torch.tensor([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [5.0, 4.0, 4.0], [1.0, 0.0, 3.0]])
    narrow = torch.tensor([[0.0, 2.0, 2.0], [3.0, 2.0, 1.0], [5.0, 4.0, 4.0], [3.0, 0.0, 3.0]])
    assert count_flips(wide, narrow) == Flips(n_flipped=2, n_ties=2, n=4)


def test_sixteen_bits_pass_with_their_own_tolerance(tiny_folders: dict[str, Path]) -> None:
    half = load_model(tiny_folders["llama"], device="cpu", dtype="bfloat16")
    checks = asked(half)
    assert "fail" not in {check.status for check in checks.values()}
    assert checks["plain transformers"].tolerance == 0.1
    assert checks["alpha 0 = clean"].tolerance == 0


@pytest.mark.gpu
def test_a_gpu_gives_the_logits_of_the_cpu(tiny_folders: dict[str, Path]) -> None:
    model = load_model(tiny_folders["llama"], device="cuda", dtype="float32")
    checks = {check.name: check for check in check_model(model, full=True)}
    assert checks["device = CPU"].status == "pass"
    assert (checks["device = CPU"].deviation or 0) > 0


def test_an_unchecked_model_loads_although_the_check_at_load_fails(
    tiny_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    BREAKAGES["the cache is lost"].apply(monkeypatch)
    with pytest.raises(UserError, match="failed the check at load"):
        load_model(tiny_folders["llama"], device="cpu")
    assert load_model(tiny_folders["llama"], device="cpu", check=False).n_layers == 3


def test_the_machine_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platform

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(bytes(1 << 25))
    monkeypatch.setenv("SITE_INTERP_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("site_interp.doctor.machine.find_browser", lambda: None)
    machine = describe_machine()
    assert (machine["python"], machine["torch"]) == (platform.python_version(), torch.__version__)
    assert (machine["cache folder"], machine["cache size"]) == (str(tmp_path), 0.03)
    assert (machine["offline"], machine["browser for PNG"]) == (True, None)
    assert machine["threads"] == torch.get_num_threads()
    assert isinstance(machine["memory"], float)
    assert isinstance(machine["memory available"], float)
    assert 0 < machine["memory available"] <= machine["memory"]
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    assert describe_machine()["offline"] is False
