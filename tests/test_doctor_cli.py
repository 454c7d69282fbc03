"""`site-interp doctor` from outside: exit codes, the table, JSON, and a table also where loading breaks."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from site_interp.cli import main
from site_interp.doctor import n_checks


@dataclass(frozen=True)
class Result:
    """What the command left behind."""

    code: int
    out: str
    err: str

    def row(self, name: str) -> list[str]:
        """The cells of a check in the table."""
        (line,) = (line for line in self.out.splitlines() if line.startswith(f"  {name}  "))
        return line.removeprefix(f"  {name}").split()


Doctor = Callable[..., Result]


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tiny_folders: dict[str, Path]
) -> Doctor:
    """Run the verb on the tiny Llama, or on another model."""
    monkeypatch.setenv("SITE_INTERP_CACHE", str(tmp_path))

    def command(*words: str, model: str | None = None) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main(["doctor", "--model", model or str(tiny_folders["llama"]), "--device", "cpu", *words])
        shown = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        assert "Traceback" not in shown.err
        return Result(leaving.value.code, shown.out, shown.err)

    return command


@pytest.fixture
def lost_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge does not find the cache, as with transformers 5.24."""
    from transformer_lens.model_bridge import TransformerBridge

    forward = TransformerBridge.forward

    def forgetful(self: Any, ids: Any, *, past_key_values: Any = None, attention_mask: Any = None, **rest: Any) -> Any:
        if past_key_values is not None:
            attention_mask = attention_mask[:, -ids.shape[1] :]
        return forward(self, ids, attention_mask=attention_mask, **rest)

    monkeypatch.setattr(TransformerBridge, "forward", forgetful)


def test_a_sound_model_exits_0_with_a_table_of_versions_and_one_of_checks(doctor: Doctor, tmp_path: Path) -> None:
    import torch
    import transformers

    done = doctor()
    assert done.code == 0
    assert done.row("transformers") == [transformers.__version__]
    assert done.row("torch") == [torch.__version__]
    assert done.row("cache folder") == [str(tmp_path)]
    result, deviation, allowed = done.row("cache on = off")
    assert (result, allowed) == ("pass", "1e-05")
    assert float(deviation) <= 1e-5
    assert done.row("sliding window") == ["skipped"]
    told = "sliding window (all this holds for a prompt longer than the window) skipped: no layer has a sliding window"
    assert done.out.endswith(f"{told}\nNo check failed.\nWhat each check compared is in --json.\n")
    assert "(padding on the left changes nothing)" not in done.out, "what passed is in the table"
    assert done.err.startswith("[  0%] loading /")
    assert "[  6%] load: pass" in done.err


def test_a_broken_cache_exits_1_and_the_table_shows_by_how_much(doctor: Doctor, lost_cache: None) -> None:
    done = doctor()
    assert done.code == 1
    result, deviation, _ = done.row("cache on = off")
    assert result == "FAIL"
    assert float(deviation) > 0.1
    assert done.row("batch = single")[0] == done.row("plain transformers")[0] == "pass"
    assert "transformers 5.24 and later break cached decoding" in done.out
    assert f" of {n_checks()} checks failed." in done.out


def test_json_is_one_object_with_every_check(doctor: Doctor, lost_cache: None) -> None:
    done = doctor("--json", "--dtype", "float32", "--full")
    assert done.code == 1
    found = json.loads(done.out)
    assert set(found) == {"machine", "model", "checks", "failed"}
    assert (found["model"]["dtype"], found["model"]["device"], found["model"]["n_heads"]) == ("float32", "cpu", 4)
    assert found["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert len(found["checks"]) == n_checks(full=True)
    assert {"name", "meaning", "status", "deviation", "tolerance", "detail"} == set(found["checks"][0])
    by_name = {check["name"]: check for check in found["checks"]}
    assert by_name["cache on = off"]["deviation"] > by_name["cache on = off"]["tolerance"]
    assert "of 48 prompts" in by_name["16-bit flips"]["detail"]
    assert found["failed"] == sum(check["status"] == "fail" for check in found["checks"]) > 0


def test_versions_under_which_loading_itself_breaks_are_a_failed_check_and_not_a_traceback(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def incompatible(*_: object) -> None:
        raise TypeError("boot_transformers() got an unexpected keyword argument 'hf_model'")

    monkeypatch.setattr("site_interp.model.load._boot", incompatible)
    done = doctor()
    assert done.code == 1
    assert done.row("load") == ["FAIL"]
    assert "load (the model can be loaded) fail: TypeError: boot_transformers() got an unexpected keyword" in done.out
    assert "transformer-lens" in done.out
    assert "1 of 1 checks failed." in done.out


@pytest.mark.parametrize(
    ("words", "model", "reason"),
    [
        ((), "smolm2-135m", "Did you mean smollm2-135m"),
        ((), "no/such/folder", "Cannot load the model 'no/such/folder'"),
        (("--dtype", "int8"), None, "float32, bfloat16, float16"),
        (("--device", "gpu9000"), None, "is no device"),
    ],
)
def test_what_the_user_can_put_right_exits_2_with_one_sentence(
    doctor: Doctor, words: tuple[str, ...], model: str | None, reason: str
) -> None:
    done = doctor("--json", *words, model=model)
    assert done.code == 2
    assert done.out == ""
    assert reason in done.err.splitlines()[-1]


def test_help_says_what_memory_it_takes_and_needs_no_torch() -> None:
    script = (
        "import sys; from site_interp.cli import main\n"
        "try: main(['doctor', '--help'])\n"
        "finally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "memory for twice the model" in " ".join(done.stdout.split())
    assert "--full" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"
