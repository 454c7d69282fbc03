"""Why these heads: what each does alone, what sets of them do together, what they write and what they look at."""

from site_interp.patching.attention import HeadScores, attention_by_role, head_scores
from site_interp.patching.curve import (
    CURVE_METRICS,
    N_RANDOM,
    RANDOM_SHARES,
    SHARES,
    Curve,
    Point,
    mask_of,
    n_of_share,
    random_masks,
    rank_heads,
    score_alphas,
)
from site_interp.patching.effects import HeadEffects, attribute_heads, sweep_heads, sweep_prompts
from site_interp.patching.intra import (
    CurveSet,
    Heads,
    icl_ablation_curves,
    n_scored,
    necessity_curves,
    sufficiency_curves,
)
from site_interp.patching.spread import EmbeddingSpread, embedding_spread
from site_interp.patching.writes import HeadWrites, head_writes

__all__ = [
    "CURVE_METRICS",
    "N_RANDOM",
    "RANDOM_SHARES",
    "SHARES",
    "Curve",
    "CurveSet",
    "EmbeddingSpread",
    "HeadEffects",
    "HeadScores",
    "HeadWrites",
    "Heads",
    "Point",
    "attention_by_role",
    "attribute_heads",
    "embedding_spread",
    "head_scores",
    "head_writes",
    "icl_ablation_curves",
    "mask_of",
    "n_of_share",
    "n_scored",
    "necessity_curves",
    "random_masks",
    "rank_heads",
    "score_alphas",
    "sufficiency_curves",
    "sweep_heads",
    "sweep_prompts",
]
