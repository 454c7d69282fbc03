"""A loaded model behind the few operations that the rest of the package needs; the only file that runs TransformerLens.

Four things: token ids of a text, one forward over (ids, mask, cache), hooks at named points, and what a forward is
about to compute. Ids, mask and position ids are always made here, never by the bridge: its own padding and BOS differ.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from site_interp.errors import UserError
from site_interp.model.fingerprint import Fingerprint
from site_interp.model.lean import Lean
from site_interp.model.tokenizer import answer_ids

Hook = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True)
class Call:
    """What one forward of the inner model is about to compute.

    Args:
        ids: Token ids of this forward, [batch new].
        mask: 1 for real tokens over everything so far, [batch past+new]; None when the caller gave none.
        n_past: Tokens already in the key/value cache.
    """

    ids: Int[Tensor, "batch new"]
    mask: Tensor | None
    n_past: int


@dataclass(frozen=True)
class Model:
    """A causal language model with hooks; use `load_model` to get one.

    Args:
        name: As asked for: a bundled name, a Hugging Face id, or a folder.
        bridge: The TransformerLens bridge; run it freely inside `inject`.
        tokenizer: As the model's own files make it; the bridge holds an altered one.
        n_layers, n_heads, d_head, d_model, d_vocab: Sizes; `n_heads` are query heads, `d_head` is read, never derived.
        n_ctx: Longest prompt in tokens.
        n_kv_heads: Key/value heads, for memory estimates.
        device, dtype: Where and in what precision the weights are.
        fingerprint: What an adapter remembers of the model.
        revision: Revision of a Hugging Face id, if one was asked for.
        restore: Undoes what loading did to an object of the caller.
        lean: How to run it where nobody looks at more than z.
    """

    name: str
    bridge: Any
    tokenizer: Any
    n_layers: int
    n_heads: int
    d_head: int
    d_model: int
    d_vocab: int
    n_ctx: int
    n_kv_heads: int
    device: torch.device
    dtype: torch.dtype
    fingerprint: Fingerprint
    revision: str | None
    restore: Callable[[], None]
    lean: Lean = field(default_factory=Lean, repr=False)

    def __repr__(self) -> str:
        heads = f"{self.n_layers} layers of {self.n_heads} heads, d_head {self.d_head}"
        return f"Model({self.name}: {heads}, {self.dtype_name} on {self.device})"

    @property
    def inner(self) -> Any:
        """The Hugging Face model inside the bridge."""
        return self.bridge.original_model

    @property
    def dtype_name(self) -> str:
        """The precision as records write it: `float32`, `bfloat16`, `float16`."""
        return str(self.dtype).removeprefix("torch.")

    def close(self) -> None:
        """Give a caller's own model back as it was: modules, hooks, gradient flags, mode and tokenizer side."""
        self.restore()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bridged(self) -> "Model":
        """The same model with the bridge in every forward, as a caller runs it."""
        return replace(self, lean=Lean())

    def token_ids(self, text: str) -> list[int]:
        """Ids exactly as plain `AutoTokenizer(text)` makes them, its BOS included if its files add one.

        Raises:
            UserError: No token at all, a text that repeats the BOS, or more tokens than the context.
        """
        try:
            ids: list[int] = self.tokenizer(text).input_ids
        except (TypeError, UnicodeEncodeError):  # a lone surrogate, which JSON can write and no encoding holds
            raise UserError(
                f"Cannot run the model on {text[:60]!a}: it holds half a character. Mend the text."
            ) from None
        if not ids:
            raise UserError(f"Cannot run the model on an empty prompt ({text!r} has no tokens). Give it some text.")
        bos = self.tokenizer.bos_token_id
        if bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos:
            raise UserError(f"Prompt {text[:60]!r} begins with the BOS token twice. Leave it out of the text.")
        if len(ids) > self.n_ctx:
            raise UserError(
                f"Prompt of {len(ids)} tokens is longer than the context of {self.name} ({self.n_ctx}). "
                "Use fewer or shorter demonstrations."
            )
        return ids

    def answer_ids(self, prompt: str, answer: str) -> list[int]:
        """Ids of an answer: what follows the prompt when both are tokenised together.

        Args:
            prompt: The prompt, ending in the answer cue.
            answer: The answer with its prefix (`Template.answer`).

        Raises:
            UserError: Prompt and answer merge into one token, or the answer has no token of its own.
        """
        return answer_ids(self.tokenizer, prompt, answer)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, special tokens left out."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation: the tokenizer's EOS and those of the generation configuration."""
        configured = getattr(self.inner.generation_config, "eos_token_id", None)
        listed = configured if isinstance(configured, list) else [configured]
        return frozenset(index for index in [*listed, self.tokenizer.eos_token_id] if index is not None)

    def hook_z(self, layer: int) -> str:
        """Name of the hook point of a layer's head outputs before W_O, [batch pos head d_head]."""
        return f"blocks.{layer}.attn.hook_z"

    def hook_resid_post(self, layer: int) -> str:
        """Name of the hook point of the residual stream behind a layer, [batch pos d_model]."""
        return f"blocks.{layer}.hook_resid_post"

    def hook_attn_out(self, layer: int) -> str:
        """Name of the hook point of what a layer's attention adds to the residual stream, [batch pos d_model]."""
        return f"blocks.{layer}.hook_attn_out"

    def hook_mlp_out(self, layer: int) -> str:
        """Name of the hook point of what a layer's MLP adds to the residual stream, [batch pos d_model]."""
        return f"blocks.{layer}.hook_mlp_out"

    def hook_pattern(self, layer: int) -> str:
        """Name of the hook point of a layer's attention, [batch head query key]."""
        return f"blocks.{layer}.attn.hook_pattern"

    def forward(
        self, ids: Int[Tensor, "batch new"], mask: Int[Tensor, "batch all"], cache: Any = None, *, n_logits: int = 0
    ) -> tuple[Float[Tensor, "batch kept d_vocab"], Any]:
        """Run new tokens after those in the cache.

        The cache given is appended to: pass `select_rows(cache, ...)`, never a cache that is needed again.

        Args:
            ids: New tokens, left padded.
            mask: 1 for real tokens, cached ones included.
            cache: What an earlier forward returned.
            n_logits: Compute logits of the last so many positions only; 0 means all.

        Returns:
            Logits in the model's dtype, and the cache with the new tokens.
        """
        inputs = self.inputs(ids, mask, cache)
        if self.lean.serves:
            with self.lean.running():
                out = self.inner(input_ids=ids, logits_to_keep=n_logits, **inputs)
            return out.logits, out.past_key_values
        logits, cache = self.bridge(ids, return_type="logits_and_cache", logits_to_keep=n_logits, **inputs)
        return logits, cache

    def prefill(self, ids: Int[Tensor, "batch new"], mask: Int[Tensor, "batch new"]) -> Any:
        """Keys and values of the first tokens of prompts, left padded, without logits where that is possible."""
        if self.lean.serves:
            with self.lean.running():
                return self.inner.base_model(input_ids=ids, **self.inputs(ids, mask, None)).past_key_values
        return self.forward(ids, mask, n_logits=1)[1]

    def inputs(self, ids: Tensor, mask: Tensor, cache: Any) -> dict[str, Any]:
        """What a forward of the inner model is given beside the ids."""
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        return {"attention_mask": mask, "position_ids": positions, "past_key_values": cache, "use_cache": True}

    @contextmanager
    def hooked(
        self,
        hooks: Sequence[tuple[str, Hook]],
        before: Callable[[Call], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        """Attach hooks at named points, and callbacks around each forward of the inner model; all removed on exit.

        Hooks on z work in any forward; those on what a layer, its attention or its MLP puts out are meant for forwards
        of this class, which go on without the bridge.

        Args:
            hooks: (hook point, function of the activation); the function returns a new tensor or None.
            before: Called with what each forward is about to compute.
            after: Called when a forward has ended without an exception.
        """
        if self.lean.bare and any(name not in self.lean.taps for name, _ in hooks):
            raise UserError(f"Cannot hook z of {self.name} while its weights are changed. Leave that block first.")
        adapted = [
            (name, lambda value, hook, function=function: function(value))
            for name, function in hooks
            if name not in self.lean.taps
        ]
        with ExitStack() as stack:
            for name, function in hooks:
                if name in self.lean.taps:
                    stack.callback(self.lean.taps[name].register_forward_hook(_OnOutput(function)).remove)
            if before is not None:
                stack.callback(self.inner.register_forward_pre_hook(_Watch(before), with_kwargs=True).remove)
            if after is not None:
                stack.callback(self.inner.register_forward_hook(lambda *_: after()).remove)
            stack.enter_context(self.bridge.hooks(fwd_hooks=adapted))
            yield

    @property
    def is_watched(self) -> bool:
        """Whether a `hooked` block that looks at each forward is open: an injection is under way."""
        return any(isinstance(hook, _Watch) for hook in self.inner._forward_pre_hooks.values())

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """No parameter asks for a gradient inside; flags are as before afterwards."""
        wanted = [parameter for parameter in self.inner.parameters() if parameter.requires_grad]
        try:
            for parameter in wanted:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in wanted:
                parameter.requires_grad_(True)


@dataclass(frozen=True, eq=False)
class _Watch:
    """A hook before each forward that says what it is about to compute."""

    before: Callable[[Call], None]

    def __call__(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.before(_call(args, kwargs))


@dataclass(frozen=True, eq=False)
class _OnOutput:
    """A hook on the output of one of the model's own modules, of which the first part counts."""

    function: Hook

    def __call__(self, _module: Any, _args: Any, out: Any) -> Any:
        value = out[0] if isinstance(out, tuple) else out
        new = self.function(value)
        return new if new is None or not isinstance(out, tuple) else (new, *out[1:])


def _call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    ids = kwargs["input_ids"] if kwargs.get("input_ids") is not None else (args[0] if args else None)
    if ids is None:
        raise UserError("Cannot inject into a forward on embeddings: the prompt's tokens are needed. Pass input ids.")
    cache = kwargs.get("past_key_values")
    return Call(ids, kwargs.get("attention_mask"), 0 if cache is None else int(cache.get_seq_length()))
