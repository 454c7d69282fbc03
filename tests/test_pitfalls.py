"""Traps that broke other tools, each with the tests that would catch it here (names may be cut off at the end).

 1 decoding loses the cache       test_load::test_a_broken_cache_is_caught_at_load, and below
 2 a cache is consumed            test_prefixes::test_a_prefix_can_be_used_again_and_again, and below for windows
 3 padding on either side         test_identities::test_a_users_own_padded_forward_is_injected_at_each_rows_last_token
 4 edits of z in place            test_identities::test_the_gradient_of_alpha_equals_central_differences
 5 lerp: exact ends, one dtype    test_identities::test_alpha_zero_and_the_models_own_z_leave_logits_bit_equal,
                                  test_injection::test_targets_of_another_precision_are_cast_to_the_models
 6 BOS as the model's files do    test_model::test_token_ids_are_those_of_the_models_own_files
 7 the first answer token         test_model::test_answer_ids_are_what_follows_the_prompt,
                                  test_prompts::test_only_answers_of_nothing_but_digits_go_without_the_prefix
 8 a misspelt hook                below
 9 slow imports                   test_public::test_importing_loads_neither_torch_nor_transformer_lens,
                                  test_cli::test_help_version_and_tasks_load_neither_torch_nor_transformer_lens
10 precision by device            below
11 lenient scores                 test_metrics::test_strict_match_is_equality_of_first_lines,
                                  test_evaluation::test_the_floors_are_scored_without_the_model
12 quirks of the FV files         test_tasks::test_fv_numbers_become_strings_lists_become_answers,
                                  test_tasks::test_fv_test_pairs_seen_in_train_or_valid_are_left_out_and_counted
13 ClinTox's leak                 no MoleculeNet loader yet
14 labels a tokenizer cannot see  no exemplar prompts yet
15 attention over one exemplar    no exemplar prompts yet
16 pictures need a browser        test_figure_files::test_without_a_browser_the_rest_is_written_and_the_reason_given,
                                  test_figure_files::test_a_browser_that_hangs_is_ended_and_the_reason_given
17 pins with their reasons        below
18 left padding without a mask    test_injection_refusals::test_padding_without_a_mask_is_refused
19 a hook fires at every step     test_injection::test_generation_injects_once_with_a_cache_and_in_every_step_without,
                                  test_injection::test_a_prompt_of_one_token_is_injected_in_its_prefill_only,
                                  test_injection_refusals::test_a_layer_that_does_not_fire_or_fires_twice_is_an_error
20 edits beside the value used    test_identities::test_the_gradient_at_alpha_zero_is_target_minus_z_times
21 one cache for two calls        test_decode::test_the_prompts_cache_is_left_unchanged, and below
22 BOS twice, cues with a space   test_model::test_a_prompt_that_repeats_the_bos_is_refused,
                                  test_model::test_an_answer_that_merges_with_its_prompt_or_has_no_token_is_refused
23 half precision and ties        below, test_evaluation::test_a_tie_is_no_hit_and_one_more_is,
                                  test_evaluation::test_constant_logits_are_never_right
24 d_head is read, never derived  test_load::test_a_folder_is_loaded_with_the_sizes_of_its_configuration,
                                  test_load::test_a_hook_z_of_another_shape_is_caught_at_load
25 readers that change strings    test_tasks_files::test_words_that_look_like_missing_values_or_numbers_stay_strings
26 the query among its shots      test_prompts::test_icl_prompts_never_show_the_query_even_where_training_has_it
27 heavy pages, bars in logs      test_figure_files::test_pages_share_one_script_of_the_folder_and_load_nothing_else,
                                  test_cli::test_run_prints_its_plan_and_progress_on_stderr_and_json_alone_on_stdout
28 many lengths in one batch      test_prefixes::test_buckets_hold_every_row_once_and_keep_to_the_budget
29 prompts beyond the context     test_prefixes::test_a_prompt_longer_than_the_context_is_refused_by_its_length
30 families that work             test_identities, on every family
31 HookedTransformer's own cache  it is not used
32 the bridge's own tokenizer     test_load::test_a_hugging_face_model_is_given_back_as_it_was, and below
33 files ordered by label         below
34 costs before a long run        test_cli::test_plan_stops_before_any_work,
                                  test_run::test_the_estimate_grows_with_the_work
35 memory of keys and values      test_prefixes::test_keys_and_values_of_a_token_take_what_the_cache_holds, and below
36 unwritable, also for root      test_files::test_a_path_below_a_regular_file_is_one_plain_sentence,
                                  test_store::test_a_full_disk_leaves_the_file_as_it_was
37 first_token never alone        test_run::test_every_unit_has_a_record_for_each_metric_it_can_have
38 hooks while prefixes are made  below
39 logits that nobody reads       below
"""

import copy
import csv
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Oracle, reference_last_logits
from tiny_models import WORDS

ROOT = Path(__file__).parent.parent
PROMPTS = tuple(f"Q: {' '.join(WORDS[(7 * n + i) % 50] for i in range(n))}\nA:" for n in (12, 11, 12))
CLOSE, APART = 1e-5, 1e-2  # shares of the largest logit: by rounding, and by a mistake


def deviation(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def test_every_pitfall_is_listed_and_every_test_named_here_exists() -> None:
    assert __doc__ is not None
    assert [int(number) for number in re.findall(r"^ ?(\d+) ", __doc__, re.MULTILINE)] == list(range(1, 40))
    here = (ROOT / "tests/test_pitfalls.py").read_text(encoding="utf-8")
    for number in re.findall(r"^ ?(\d+) .*\bbelow\b", __doc__, re.MULTILINE):
        assert f"def test_{number}_" in here, number
    for file, name in re.findall(r"(test_\w+)::(test_\w+)", __doc__):
        assert f"def {name}" in (ROOT / "tests" / f"{file}.py").read_text(encoding="utf-8"), name


def test_1_a_cache_argument_of_another_name_is_caught_at_load(
    family: str, tiny_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformer_lens.model_bridge.generalized_components.attention import AttentionBridge

    from site_interp.errors import UserError
    from site_interp.model import load_model

    update = AttentionBridge._update_kv_cache

    def renamed(self: Any, k: Any, v: Any, **kwargs: Any) -> Any:
        names = {"past_key_values": "kv_cache", "layer_past": "kv_cache"}
        return update(self, k, v, **{names.get(name, name): value for name, value in kwargs.items()})

    monkeypatch.setattr(AttentionBridge, "_update_kv_cache", renamed)
    with pytest.raises(UserError, match="failed the check"):
        load_model(tiny_folders[family])


@torch.no_grad()
@pytest.mark.parametrize("family", ["gemma3", "mistral"], indirect=True)
def test_2_rows_of_a_sliding_window_are_selected_and_never_rebuilt(model: Any, oracle: Oracle) -> None:
    from transformers import DynamicCache

    from site_interp.prefixes import encode_prompts

    (prefixes,) = encode_prompts(model, PROMPTS)
    assert prefixes.ids.shape[1] - 1 > 6, "the prefix must not fit in the window"
    expected = torch.stack([reference_last_logits(oracle, prompt) for prompt in PROMPTS])[prefixes.rows]
    chosen = torch.tensor([2, 0])
    logits, _ = prefixes.select(chosen).run_last()
    assert deviation(logits[:, -1], expected[chosen]) < CLOSE
    rebuilt = DynamicCache(config=model.inner.config)
    for index, layer in enumerate(prefixes.cache.layers):
        rebuilt.update(layer.keys[chosen], layer.values[chosen], index)
    wrong, _ = model.forward(prefixes.ids[chosen, -1:], prefixes.mask[chosen], rebuilt, n_logits=1)
    assert deviation(wrong[:, -1], expected[chosen]) > APART


def test_8_a_misspelt_hook_is_an_error(llama: Any) -> None:
    with pytest.raises(KeyError, match="hook_zz"), llama.hooked([("blocks.0.attn.hook_zz", lambda z: None)]):
        llama.bridge(torch.tensor([[4, 8]]))


def test_10_full_precision_on_the_cpu_and_bfloat16_on_a_gpu(llama: Any) -> None:
    from site_interp.model.load import _dtype

    assert llama.dtype_name == "float32"
    assert _dtype(None, torch.device("cuda")) is torch.bfloat16
    assert _dtype("float32", torch.device("cuda")) is torch.float32


def test_17_versions_that_break_or_are_huge_are_pinned_with_a_reason() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for pin in ("torch==2.13.0", "transformers==5.23.0", "transformer-lens==4.3.0"):
        assert lines[lines.index(pin) - 1].startswith("#"), pin
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert "transformers>=5.9,<5.24" in wanted
    assert "torch==2.13.0" in (ROOT / "README.md").read_text(encoding="utf-8")


@torch.no_grad()
def test_21_a_forward_appends_to_the_cache_it_is_given_and_a_copy_protects_it(model: Any, oracle: Oracle) -> None:
    from site_interp.model import select_rows
    from site_interp.prefixes import encode_prompts

    (prefixes,) = encode_prompts(model, PROMPTS[:1])
    given, mask, last = copy.deepcopy(prefixes.cache), prefixes.mask, prefixes.ids[:, -1:]
    n_before = given.get_seq_length()
    for _ in range(2):
        logits, _ = model.forward(last, mask, select_rows(given), n_logits=1)
        assert deviation(logits[0, -1], reference_last_logits(oracle, PROMPTS[0])) < CLOSE
    assert given.get_seq_length() == n_before
    model.forward(last, mask, given, n_logits=1)
    assert given.get_seq_length() == n_before + 1


def test_23_half_precision_is_written_into_what_it_made(tiny_folders: dict[str, Path], task: Any) -> None:
    from site_interp.embedding import embed_task
    from site_interp.model import load_model

    half = load_model(tiny_folders["llama"], device="cpu", dtype="bfloat16")
    embedding = embed_task(half, task, n_prompts=2, n_shots=2)
    assert (half.dtype_name, embedding.dtype, embedding.mean.dtype) == ("bfloat16", "bfloat16", torch.float32)


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral"], indirect=True)
def test_32_labels_differ_although_the_bridge_puts_a_bos_in_front_of_each(model: Any) -> None:
    bos = model.tokenizer.bos_token_id
    first = [model.answer_ids("Q: aa\nA:", f" {word}")[0] for word in WORDS]
    assert len({*first, bos}) == len(WORDS) + 1
    assert {model.bridge.tokenizer(f" {word}").input_ids[0] for word in WORDS} == {bos}


def test_33_a_file_ordered_by_label_has_every_label_in_every_split(tmp_path: Path) -> None:
    from site_interp.tasks import load_task

    rows = [(f"text {n}", "no" if n < 30 else "yes") for n in range(60)]
    with (tmp_path / "ordered.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("input", "output"), *rows])
    task = load_task(str(tmp_path / "ordered.csv"))
    for split in (task.train, task.valid, task.test):
        assert {example.answer for example in split} == {"no", "yes"}


@torch.no_grad()
def test_35_a_whole_cache_is_continued_without_a_copy_of_its_keys_and_values(model: Any) -> None:
    from site_interp.model import select_rows
    from site_interp.prefixes import encode_prompts

    (prefixes,) = encode_prompts(model, PROMPTS)
    for own, copied in zip(prefixes.cache.layers, select_rows(prefixes.cache).layers, strict=True):
        assert copied is not own
        assert (copied.keys.data_ptr(), copied.values.data_ptr()) == (own.keys.data_ptr(), own.values.data_ptr())


def test_38_prefixes_are_not_computed_while_an_injection_is_under_way(llama: Any) -> None:
    from site_interp.errors import UserError
    from site_interp.injection import Intervention, injecting
    from site_interp.prefixes import encode_prompts

    shape = (1, llama.n_layers, llama.n_heads)
    with injecting(llama, Intervention(torch.ones(*shape, llama.d_head), torch.ones(shape))):
        llama.bridge(torch.tensor([[4, 8]]))
        with pytest.raises(UserError, match="inside an inject block"):
            encode_prompts(llama, PROMPTS)
    assert len(encode_prompts(llama, PROMPTS)) == 1


def test_39_a_prefix_has_logits_of_one_position_at_most(model: Any) -> None:
    from site_interp.prefixes import encode_prompts

    seen: list[int] = []
    unembedding = model.inner.get_output_embeddings()
    hook = unembedding.register_forward_hook(lambda _, inputs, logits: seen.append(logits.shape[1]))
    try:
        (prefixes,) = encode_prompts(model, PROMPTS)
        before = list(seen)
        prefixes.run_last(n_logits=0)
    finally:
        hook.remove()
    assert set(before) <= {1}
    assert seen[len(before) :] == [1]
