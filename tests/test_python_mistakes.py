"""Wrong types in Python, as users without run-time checks make them: each is one sentence that says what to give."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = {
    "si.generate(m, 'aa')": "give a list of texts",
    "si.generate(m, [1], a)": "give a list of texts",
    "si.generate(m, [None])": "give a list of texts",
    "si.generate(m, ['aa'], [a])": "give an Adapter",
    "si.generate(m, ['aa'], 'folder')": "give an Adapter",
    "si.generate(m, ['aa'], {'x': 'y'}, adapter_names=['x'])": "give an Adapter",
    "si.generate(m, ['aa'], {'x': a}, adapter_names='x')": "give a list of names",
    "si.generate(m, ['aa'], max_new_tokens=1.5)": "Give max_new_tokens of 1 or more",
    "si.inject(m, None)": "Cannot inject nothing",
    "si.inject(m, [a])": "give an Adapter",
    "si.inject(m, si.Intervention([1], [2]))": "give an Adapter",
    "si.evaluate(m, 'antonym', [si.ZeroShot()])": "give a Task",
    "si.embed_task(m, 'antonym')": "give a Task",
    "si.evaluate(m, t, si.ZeroShot())": "give a list of methods",
    "si.evaluate(m, t, ['zero_shot'])": "give a list of methods",
    "si.evaluate(m, t, 'icl')": "give a list of methods",
    "si.embed_task(m, t, n_prompts=2, n_shots=2, seed='0')": "with the seed '0'",
    "si.fit_selection(m, t, a.embedding, seed=0.5)": "with the seed 0.5",
    "si.FitSettings(n_steps=1.5)": "Cannot fit with n_steps 1.5",
    "si.FitSettings(lr='0.2')": "Cannot fit with lr '0.2'",
    "si.FitSettings(mixing='blend')": "with mixing 'blend'. Give 'interpolate' or 'add'",
    "si.FitSettings(per='model')": "with per 'model'. Give 'head' or 'layer'",
    "si.FitSettings(loss='all')": "with loss 'all'. Give 'first_token' or 'answer'",
    "si.SITE(heads='some')": "with heads 'some'. Give soft, hard, top, all",
    "si.SITE(target='none')": "with target 'none'. Give task, random, other, mean",
    "si.FitSettings(init='0')": "with init '0'",
    "rank_heads(a.embedding.mean)": "give [layer head], ties alike",
    "rank_heads(a.selection.alpha, a.selection.alpha[:1])": "give [layer head], ties alike",
    "si.head_writes(m, a.embedding.mean[:1], [(0, 0)], n_tokens=2)": "Give a task embedding's mean",
    "si.overlap([a, b], k=1.5)": "sets of 1.5 heads",
    "si.overlap([a, b], k=True)": "sets of True heads",
    "si.transfer(m, [t, t], [a])": "only file/t was given",
    "si.transfer(m, [t, u], [a, b]).values('nonsense')": "there are soft, top_k, counterpart",
    "si.rankings(a, {'foo': effects})": "there are zero_shot, shuffled, attribution",
    "si.ICL('3')": "Cannot ask with '3' demonstrations",
}
SCRIPT = """
import dataclasses, json, sys
import site_interp as si
from site_interp.patching import rank_heads
from site_interp.tasks import Example
m = si.load_model(sys.argv[1])
rows = tuple(Example(f"{x} {y}", (y,)) for x in ("aa", "ab", "ac") for y in ("ba", "bb", "bc", "bd"))
t = si.Task("file/t", rows[:6], rows[6:9], rows[9:])
embedding = si.embed_task(m, t, n_prompts=2, n_shots=2)
a = si.Adapter(embedding, si.fit_selection(m, t, embedding, settings=si.FitSettings(n_steps=1)))
u = dataclasses.replace(t, name="file/u")
b = si.Adapter(dataclasses.replace(embedding, task="file/u", split_hash=u.split_hash), a.selection)
effects = si.attribute_heads(m, t, embedding, n_prompts=1)
said = {}
for call in json.loads(sys.argv[2]):
    try:
        eval(call)
        said[call] = "accepted"
    except si.UserError as error:
        said[call] = str(error)
    except Exception as error:
        said[call] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tiny_folders: dict[str, Path]) -> dict[str, str]:
    command = [sys.executable, "-c", SCRIPT, str(tiny_folders["llama"]), json.dumps(list(CALLS))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_type_is_refused_in_one_sentence(said: dict[str, str], call: str) -> None:
    assert said[call].startswith("Cannot ")
    assert CALLS[call] in said[call]
    assert "\n" not in said[call]
