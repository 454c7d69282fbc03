"""The checks in their order, and running them."""

from collections.abc import Iterator

from site_interp.doctor import forwards, injections, precision
from site_interp.doctor.check import Check, Question, ask
from site_interp.doctor.subject import Subject
from site_interp.model import Model

QUESTIONS = (
    Question("load", "the check that every load makes passes", forwards.loads),
    Question("BOS", "ids are what plain AutoTokenizer makes, with one BOS at most", forwards.tokens_are_plain),
    Question("batch = single", "a prompt's logits do not depend on its batch", forwards.batch_equals_single),
    Question("left-padded = unpadded", "padding on the left changes nothing", forwards.left_padding_is_ignored),
    Question("right-padded = unpadded", "padding on the right changes nothing", forwards.right_padding_is_ignored),
    Question("cache on = off", "decoding on the key/value cache equals full forwards", forwards.cache_equals_none),
    Question("sliding window", "all this holds for a prompt longer than the window", forwards.window_is_kept),
    Question("prefix path", "one token on a kept prefix equals the whole prompt", injections.prefix_equals_full),
    Question("prefix path, injected", "so it does with heads injected", injections.injected_prefix_equals_full),
    Question("prefixes joined", "so it does in a batch of all lengths", injections.joined_prefixes_equal_full),
    Question("own modules = bridge", "so it does without the bridge's wrapping", injections.own_modules_equal_bridge),
    Question("alpha 0 = clean", "an injection of strength 0 changes no bit", injections.alpha_zero_changes_nothing),
    Question("alpha 1 = replaced", "at strength 1 every layer's z is the target", injections.alpha_one_replaces_z),
    Question("alpha 1 = other prompt", "another prompt's heads give its logits", injections.alpha_one_gives_the_other),
    Question("injection receipt", "each row and layer is injected once, or it is an error", injections.receipt_counts),
    Question("branches = rows", "many alphas on one prefix equal one row for each", injections.branches_equal_rows),
    Question("plain transformers", "log-probabilities are those without TransformerLens", forwards.equals_plain),
)
FULL_QUESTIONS = (
    Question("16-bit flips", "how often 16 bits change the most likely token", precision.bf16_flips),
    Question("device = CPU", "the device gives the logits of the CPU", precision.device_equals_cpu),
)


def n_checks(*, full: bool = False) -> int:
    """How many checks there are."""
    return len(QUESTIONS) + (len(FULL_QUESTIONS) if full else 0)


def iterate_checks(model: Model, *, full: bool = False) -> Iterator[Check]:
    """Run the checks one after the other; see `check_model`."""
    subject = Subject(model)
    for question in (*QUESTIONS, *(FULL_QUESTIONS if full else ())):
        yield ask(question, subject)


def check_model(model: Model, *, full: bool = False) -> list[Check]:
    """Whether a model does, on this machine and with these versions, what every number here rests on.

    The model is left as it is. One check loads its weights a second time, from the model's name, and holds both. An
    exception in a check is that check's failure.

    Args:
        model: Two checks load its name again, and are skipped where that leads to no files; an object of the caller
            with other weights than those of its name fails one of them.
        full: Also compare with a 16-bit load and with the CPU.

    Returns:
        The checks, each with its deviation and tolerance; all is well if none has status `fail`.

    Example:
        failed = [check for check in check_model(model) if check.status == "fail"]
    """
    return list(iterate_checks(model, full=full))
