"""What an adapter remembers of the model it was made with, and how two such memories are compared."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PROBE_TEXTS = (
    "The capital of France is Paris.",
    "Q: hot\nA: cold\n\nQ: early\nA:",
    "In 1969 three astronauts flew to the moon, and two of them walked on it.",
)
N_PROBE_HEADS = 16
N_PROBE_VALUES = 4
# Relative distance of the probes that still counts as the same model: rounding in the wider type, 4-bit weights in the
# narrower ones. Folding or centring the weights moves z by far more.
TOLERANCES = {"float32": 0.01, "bfloat16": 0.35, "float16": 0.35}


@dataclass(frozen=True)
class Fingerprint:
    """Architecture, tokenizer and a probe of the head outputs.

    Args:
        architecture: Fields that fix the shape of the model.
        tokenizer: Hash of the vocabulary and of how three probe texts are tokenised.
        weights: Hash of a sample of the weights in fp32; equal for the same file in the same precision.
        probe: z of the last token of three fixed sentences at 16 heads spread over the model, four values each.
    """

    architecture: Mapping[str, Any]
    tokenizer: str
    weights: str
    probe: tuple[float, ...]

    @property
    def id(self) -> str:
        """A short hash for result records; the same on every machine that holds the same weights."""
        text = json.dumps([dict(self.architecture), self.tokenizer, self.weights], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Fingerprint":
        """Read a fingerprint back from JSON values.

        Raises:
            TypeError, KeyError: A field is missing or of another type.
        """
        if not isinstance(values["architecture"], dict):
            raise TypeError(f"architecture is {values['architecture']!r}")
        if not isinstance(values["tokenizer"], str) or not isinstance(values["weights"], str):
            raise TypeError("tokenizer and weights are no hashes")
        if not isinstance(values["probe"], list | tuple) or not all(
            isinstance(v, int | float) for v in values["probe"]
        ):
            raise TypeError("probe is no list of numbers")
        return cls(values["architecture"], values["tokenizer"], values["weights"], tuple(map(float, values["probe"])))

    def differences(self, other: "Fingerprint", dtype: str) -> list[str]:
        """What keeps two models from being the same one, in words; empty when nothing does.

        Args:
            other: The fingerprint to compare with.
            dtype: Precision of the less precise of the two models.
        """
        found = [
            f"{key} {self.architecture.get(key)} against {other.architecture.get(key)}"
            for key in sorted({*self.architecture, *other.architecture})
            if self.architecture.get(key) != other.architecture.get(key)
        ]
        if self.tokenizer != other.tokenizer:
            found.append("another tokenizer")
        if not found and (deviation := _relative_distance(self.probe, other.probe)) > TOLERANCES.get(dtype, 0.35):
            found.append(f"other weights (head outputs differ by {deviation:.0%})")
        return found


def _relative_distance(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    if len(first) != len(second):
        return float("inf")
    size = sum(value * value for value in first) + sum(value * value for value in second)
    apart = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    return float((2 * apart / size) ** 0.5) if size > 0 else 0.0


def probe_heads(n_layers: int, n_heads: int) -> list[tuple[int, int]]:
    """The (layer, head) pairs probed: up to 16, spread evenly over the model."""
    total = n_layers * n_heads
    n = min(N_PROBE_HEADS, total)
    return [divmod(index * total // n, n_heads) for index in range(n)]


def tokenizer_hash(tokenizer: Any) -> str:
    """A hash of the vocabulary and of the ids of the probe texts, BOS included."""
    content = [sorted(tokenizer.get_vocab().items()), [tokenizer(text).input_ids for text in PROBE_TEXTS]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def weights_hash(parameters: Any) -> str:
    """A hash of the first 256 values of each parameter, in fp32."""
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(str(tuple(parameter.shape)).encode())
        digest.update(parameter.detach().flatten()[:256].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
