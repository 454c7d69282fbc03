"""Where names stand beside their markers, so that none covers another."""

import math
from collections.abc import Sequence

MARKER = 10  # pixels
BESIDE = 9  # pixels between the middle of a marker and a name beside it

# Where a name can stand beside its marker, best first: how far across and up as parts of the distance.
SIDES = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)]
SIDES += [(across, up) for part in (1.0, 0.5) for across in (1.0, -1.0) for up in (part, -part)]
DISTANCES = (0, 12, 24, 38, 54, 72, 100, 130)  # pixels more than beside the marker; a line then leads to the name
# What it costs a name to stand there, or its line to cross what stands there, in pixels of distance.
ON_NAME, ON_MARKER, ON_BAR, ON_LINE, OUTSIDE = 400, 80, 45, 200, 900
LINE_ON_NAME, LINE_ON_MARKER, NEARER_ANOTHER = 200, 15, 40

Box = tuple[float, float, float, float]  # left, bottom, right, top


def label_places(
    points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], bars: Sequence[Box], panel: Box
) -> list[tuple[float, float]]:
    """How far the middle of each label lies from its point, in pixels across and up.

    Each label takes the cheapest place, given where the others stand: beside its point where it is free, farther off
    where not. What is chosen depends on nothing but the arguments.

    Args:
        points: Places of the markers in pixels, from the lower left corner.
        sizes: Width and height of the labels.
        bars: What a label should not stand on.
        panel: What a label should not leave.

    Example:
        >>> label_places([(50.0, 50.0), (58.0, 50.0)], [(20.0, 10.0)] * 2, [], (0.0, 0.0, 99.0, 99.0))
        [(-19.0, 0.0), (19.0, 0.0)]
    """
    markers = [(x - MARKER / 2, y - MARKER / 2, x + MARKER / 2, y + MARKER / 2) for x, y in points]
    # From the right to the left and downwards, so that of two close neighbours the right one is named on the right.
    order = sorted(range(len(points)), key=lambda index: (-points[index][0], -points[index][1]))
    offsets = [(0.0, 0.0)] * len(points)
    placed: dict[int, Box] = {}
    leaders: dict[int, list[Box]] = {}
    for _ in range(4):  # the first that are placed do not know the others yet
        for index in order:
            point, size = points[index], sizes[index]
            others = [box for other, box in placed.items() if other != index]
            lines = [dot for other, dots in leaders.items() if other != index for dot in dots]
            best = math.inf
            for distance, offset in _candidates(size):
                box = _box(point, size, offset)
                dots = _leader_dots(point, box)
                price = distance + OUTSIDE * (not _inside(box, panel))
                price += ON_NAME * _hits(box, others) + ON_MARKER * _hits(box, markers) + ON_BAR * _hits(box, bars)
                price += ON_LINE * (_hits(box, lines) > 0) + LINE_ON_NAME * any(_hits(dot, others) for dot in dots)
                price += LINE_ON_MARKER * sum(_hits(dot, markers) for dot in dots)
                gap = math.dist(point, nearest(point, box))
                price += NEARER_ANOTHER * any(math.dist(other, nearest(other, box)) < gap for other in points)
                if price < best:
                    best, offsets[index], placed[index], leaders[index] = price, offset, box, dots
    return offsets


def _candidates(size: tuple[float, float]) -> list[tuple[float, tuple[float, float]]]:
    """The places a label of this size can take, each with its price; the farther from the point, the dearer."""
    candidates = []
    for distance in DISTANCES:
        for rank, (across, up) in enumerate(SIDES):
            beside = math.copysign(size[0] / 2 + (2 if up else BESIDE), across) if across else 0.0
            over = math.copysign(size[1] / 2 + (2 if across else BESIDE), up) if up else 0.0
            candidates.append((distance + 0.5 * rank, (beside + across * distance, over + up * distance)))
    return candidates


def _box(point: tuple[float, float], size: tuple[float, float], offset: tuple[float, float]) -> Box:
    """The room of a label whose middle lies so far from its point."""
    x, y = point[0] + offset[0], point[1] + offset[1]
    return x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2


def nearest(point: tuple[float, float], box: Box) -> tuple[float, float]:
    """The place in a box that is nearest to a point."""
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def _leader_dots(point: tuple[float, float], box: Box) -> list[Box]:
    """Dots along the line from a marker to its label, five pixels apart; none where the label stands beside it."""
    ends = nearest(point, box)
    length = math.dist(point, ends)
    steps = range(MARKER, round(length), 5) if length > 1.5 * MARKER else range(0)
    dots = [[start + step / length * (end - start) for start, end in zip(point, ends, strict=True)] for step in steps]
    return [(x - 1, y - 1, x + 1, y + 1) for x, y in dots]


def _hits(box: Box, others: Sequence[Box]) -> int:
    """How many of the others a box stands on."""
    left, bottom, right, top = box
    return sum(left < other[2] and other[0] < right and bottom < other[3] and other[1] < top for other in others)


def _inside(box: Box, panel: Box) -> bool:
    return panel[0] <= box[0] and panel[1] <= box[1] and box[2] <= panel[2] and box[3] <= panel[3]
