"""Where the joints of a dendrogram stand, over a given order of its leaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from site_interp.plots.style import as_array


@dataclass(frozen=True)
class Joint:
    """Two clusters that become one.

    Args:
        places: Where the two stand along the axis of the leaves, the left one first; a leaf stands at its place in
            the order, a cluster midway between its two parts.
        feet: Distance at which each of the two was made, 0 for a leaf.
        height: Distance at which they join.
    """

    places: tuple[float, float]
    feet: tuple[float, float]
    height: float


def dendrogram_joints(merges: Any, order: Sequence[int]) -> list[Joint]:
    """The joint of each merge.

    Args:
        merges: As scipy's `linkage` returns them: cluster, cluster, distance, leaves, one row per merge. Number
            i < n is leaf i, number n + j the cluster made by row j.
        order: The leaves from left to right.

    Raises:
        ValueError: Not one merge fewer than leaves, or an order that tears a cluster apart.

    Example:
        >>> dendrogram_joints([[0, 1, 0.5, 2]], [1, 0])
        [Joint(places=(0.0, 1.0), feet=(0.0, 0.0), height=0.5)]
    """
    rows = as_array(merges)
    if sorted(order) != list(range(len(order))) or rows.shape != (len(order) - 1, 4):
        raise ValueError(
            f"Cannot draw a dendrogram: merges of shape {rows.shape} do not join {len(order)} leaves. "
            "Give the order and the merges of one clustering."
        )
    place_of = {leaf: float(place) for place, leaf in enumerate(order)}
    foot_of = dict.fromkeys(place_of, 0.0)
    leaves_of = {leaf: [place] for leaf, place in place_of.items()}
    joints = []
    for made, (first, second, height, _) in enumerate(rows.tolist(), start=len(order)):
        left, right = sorted((int(first), int(second)), key=place_of.__getitem__)
        leaves = leaves_of[made] = leaves_of[left] + leaves_of[right]
        if max(leaves) - min(leaves) + 1 != len(leaves):
            raise ValueError("Cannot draw a dendrogram: the order tears a cluster apart. Order by the same merges.")
        places = (place_of[left], place_of[right])
        joints.append(Joint(places, (foot_of[left], foot_of[right]), height))
        place_of[made], foot_of[made] = sum(places) / 2, height
    return joints
