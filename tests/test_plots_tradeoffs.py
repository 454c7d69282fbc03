"""Right answers against labels and cost: every number at its place on a log axis, every method named and told apart."""

import html
import itertools
import math
from typing import Any

import numpy as np
import pytest

from site_interp.plots import METHOD_COLOURS, TradeoffRow, accuracy_by_cost, accuracy_by_labels, method_colour
from site_interp.plots.label_places import label_places
from site_interp.plots.tradeoffs import SYMBOLS

ATTACK = "<script>alert(1)</script> & <b>x</b>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;x&lt;/b&gt;"
METHODS = "zero_shot icl many_shot_icl site function_vector task_vector mtv i2cl ltv lora ia3 knn echo majority".split()
FLOORS = ("echo", "majority")
COUNTS = (10, 50, 200)


def grid(methods: list[str], value: float = 0.5) -> list[TradeoffRow]:
    return [TradeoffRow(method, count, value, value - 0.25, value + 0.125) for method in methods for count in COUNTS]


def named(figure: Any, name: str) -> Any:
    (trace,) = [part for part in figure.data if part.name == name]
    return trace


def lightness_and_hue(colour: str) -> Any:
    """A colour written #rrggbb in Oklab, where equal distances look alike."""
    red_green_blue = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(red_green_blue <= 0.04045, red_green_blue / 12.92, ((red_green_blue + 0.055) / 1.055) ** 2.4)
    cones = [[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]]
    opponents = [[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]]
    return np.array(opponents) @ np.cbrt(np.array(cones) @ linear)


def label_boxes(figure: Any, width: float = 5.9, height: float = 13.0) -> list[tuple[float, float, float, float]]:
    """Where the names of a cost figure stand, in pixels of the panel."""
    layout = figure.layout
    (left, right), (bottom, top) = layout.xaxis.range, layout.yaxis.range
    across = (layout.width - layout.margin.l - layout.margin.r) / (right - left)
    up = (layout.height - layout.margin.t - layout.margin.b) / (top - bottom)
    boxes = []
    for note in layout.annotations:
        x, y = (note.x - left) * across, (note.y - bottom) * up
        x, y = (x + note.ax, y - note.ay) if note.showarrow else (x + note.xshift, y + note.yshift)
        half = width * len(html.unescape(note.text)) / 2
        x += {"left": half, "center": 0, "right": -half}[note.xanchor]
        boxes.append((x - half, y - height / 2, x + half, y + height / 2))
    return boxes


def overlaps(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_a_line_shows_percent_and_interval_at_each_number_of_labels() -> None:
    rows = [
        TradeoffRow("site", 200, 0.75, None, None),
        TradeoffRow("site", 10, 0.5, 0.25, 0.625),
        TradeoffRow("site", 50, 1, math.nan, math.nan),
    ]
    figure = accuracy_by_labels(rows, metric="prefix match", title="smol")
    site = named(figure, "site")
    assert list(site.x) == pytest.approx([10, 50, 200])
    assert list(site.y) == [50, 100, 75]
    assert (list(site.error_y.arrayminus), list(site.error_y.array)) == ([25, None, None], [12.5, None, None])
    assert site.mode == "lines+markers"
    assert list(site.customdata) == [
        "site, 10 labels: 50.0 % [25.0, 62.5]",
        "site, 50 labels: 100.0 %",
        "site, 200 labels: 75.0 %",
    ]
    assert site.hovertemplate == "%{customdata}<extra></extra>"
    assert figure.layout.title.text == "smol"
    assert figure.layout.yaxis.title.text == "prefix match (%)"


def test_the_label_axis_is_logarithmic_with_a_tick_at_each_number_that_occurs_and_no_other() -> None:
    figure = accuracy_by_labels([TradeoffRow("icl", 7, 0.5), TradeoffRow("site", 1500, 0.5), TradeoffRow("knn", 7, 0)])
    axis = figure.layout.xaxis
    assert (axis.type, axis.title.text) == ("log", "labelled examples")
    assert (list(axis.tickvals), list(axis.ticktext)) == ([7, 1500], ["7", "1,500"])
    assert axis.range[0] < math.log10(7)
    assert math.log10(1500) < axis.range[1] < 4
    assert figure.layout.yaxis.dtick == 20
    assert figure.layout.yaxis.range[0] == 0
    assert 100 <= figure.layout.yaxis.range[1] < 105
    assert figure.layout.width == 900


@pytest.mark.parametrize("counts", [COUNTS, (16, 17), (30,), (10, 12, 1000)])
def test_methods_stand_beside_each_other_at_a_number_and_never_nearer_to_another_number(
    counts: tuple[int, ...],
) -> None:
    methods = METHODS[1:12]
    rows = [TradeoffRow(method, count, 0.5, 0.4, 0.6) for method in methods for count in counts]
    figure = accuracy_by_labels(rows)
    places = np.log10([named(figure, method).x for method in methods])
    assert (np.diff(places, axis=0) > 0).all()
    assert np.diff(places, axis=0).std() < 1e-9
    for at, count in enumerate(counts):
        assert places[:, at].mean() == pytest.approx(math.log10(count))
    assert (places[-1, :-1] < places[0, 1:]).all()
    low, high = figure.layout.xaxis.range
    assert low < places.min()
    assert places.max() < high
    if counts == COUNTS:
        pixels = (figure.layout.width - figure.layout.margin.l - figure.layout.margin.r) / (high - low)
        assert np.diff(places, axis=0).min() * pixels > 6  # the end of an interval bar is 6 pixels wide


def test_a_method_without_labels_is_a_dashed_line_across_with_its_value_at_the_edge() -> None:
    figure = accuracy_by_labels([TradeoffRow("zero_shot", 0, 0.125, 0.0625, 0.25), *grid(["site"])])
    flat = named(figure, "zero_shot")
    low, high = figure.layout.xaxis.range
    assert np.log10([flat.x[0], flat.x[-1]]) == pytest.approx([low, high])
    assert set(flat.y) == {12.5}
    assert (flat.mode, flat.line.dash, flat.line.color) == ("lines", "dash", METHOD_COLOURS["zero_shot"])
    assert (flat.error_y.arrayminus[1], flat.error_y.array[1]) == (6.25, 12.5)
    assert low < math.log10(flat.x[1]) < math.log10(named(figure, "site").x[0])
    assert set(flat.customdata) == {"zero_shot, 0 labels: 12.5 % [6.2, 25.0]"}
    assert "zero_shot 12.5 %" in [note.text for note in figure.layout.annotations]
    assert list(figure.layout.xaxis.tickvals) == list(COUNTS)


def test_intervals_of_several_methods_without_labels_stand_beside_each_other() -> None:
    flat = ["zero_shot", "majority", "echo"]
    figure = accuracy_by_labels([TradeoffRow(method, 0, 0.1, 0, 0.2) for method in flat] + grid(["site"]))
    bars = [named(figure, method).x[1] for method in flat]
    assert bars == sorted(set(bars))
    assert len({named(figure, method).line.dash for method in flat}) == 3, "two of them have one colour"


def test_lines_that_reach_the_edge_are_named_there_and_the_others_in_the_legend() -> None:
    rows = [TradeoffRow("icl", 10, 0.5), *grid(["site", "lora(lr=0.003)"], 0.75), TradeoffRow("knn", 200, 0.25)]
    figure = accuracy_by_labels(rows)
    assert [part.name for part in figure.data if part.showlegend] == ["icl"]
    notes = {note.text: note for note in figure.layout.annotations}
    assert set(notes) == {"site 75.0 %", "lora(lr=0.003) 75.0 %", "knn 25.0 %"}
    assert {note.x for note in notes.values()} == {figure.layout.xaxis.range[1]}
    assert notes["knn 25.0 %"].y == 25
    assert figure.layout.margin.r > 6 * len("lora(lr=0.003) 75.0 %")
    assert accuracy_by_labels(grid(["site"])).layout.height < figure.layout.height, "no room for a legend without one"


def test_names_at_the_edge_stand_apart_in_the_order_of_the_values_and_inside_the_panel() -> None:
    rows = [TradeoffRow(method, 50, 0.99 + index / 2000) for index, method in enumerate(METHODS[:12])]
    layout = accuracy_by_labels([*rows, TradeoffRow("echo", 50, 0)]).layout
    pixels = (layout.height - layout.margin.t - layout.margin.b) / (layout.yaxis.range[1] - layout.yaxis.range[0])
    heights = [note.y * pixels - note.ay for note in layout.annotations]
    assert np.diff(heights[:12]).min() >= 14
    assert max(heights) <= layout.yaxis.range[1] * pixels
    assert heights[12] >= 5


@pytest.mark.parametrize("draw", [accuracy_by_labels, accuracy_by_cost])
def test_a_method_has_its_colour_and_its_marker_whatever_its_settings(draw: Any) -> None:
    figure = draw([TradeoffRow(method, 10, 0.5, 0.4, 0.6) for method in [*METHODS, "lora(lr=0.003)", "someone's own"]])
    for method in METHODS:
        trace = named(figure, method)
        assert trace.marker.color == trace.error_y.color == METHOD_COLOURS[method]
        assert trace.marker.symbol == SYMBOLS[method]
    assert named(figure, "lora(lr=0.003)").marker == named(figure, "lora").marker
    assert named(figure, html.escape("someone's own")).marker.color == method_colour("someone's own")


def test_colours_are_well_apart_and_no_two_methods_share_a_marker() -> None:
    assert set(SYMBOLS) == set(METHODS)
    assert len(set(SYMBOLS.values())) == len(SYMBOLS)
    for one, other in itertools.combinations(METHODS, 2):
        if {one, other} != set(FLOORS):
            colours = [lightness_and_hue(METHOD_COLOURS[method]) for method in (one, other)]
            assert math.dist(*colours) >= 0.1, f"{one} and {other} look alike"


def test_a_marker_stands_at_its_cost_and_share_with_its_interval() -> None:
    rows = [TradeoffRow("site", 2.5, 0.5, 0.25, 0.625), TradeoffRow("icl", 4000, 0.75)]
    figure = accuracy_by_cost(rows, metric="prefix match", cost="ms per query", title="smol")
    site, icl = named(figure, "site"), named(figure, "icl")
    assert (list(site.x), list(site.y), list(icl.x), list(icl.y)) == ([2.5], [50], [4000], [75])
    assert (list(site.error_y.arrayminus), list(site.error_y.array)) == ([25], [12.5])
    assert list(icl.error_y.array) == [None]
    assert (list(site.customdata), list(icl.customdata)) == (
        ["site, 2.5 ms per query: 50.0 % [25.0, 62.5]"],
        ["icl, 4,000 ms per query: 75.0 %"],
    )
    assert {part.mode for part in figure.data} == {"markers"}
    assert not any(part.showlegend for part in figure.data)
    axis = figure.layout.xaxis
    assert (axis.type, axis.title.text, figure.layout.yaxis.title.text) == ("log", "ms per query", "prefix match (%)")
    assert axis.range[0] < math.log10(2.5)
    assert axis.range[1] > math.log10(4000)
    assert list(axis.ticktext) == ["10", "100", "1,000"]
    assert figure.layout.title.text == "smol"
    assert figure.layout.yaxis.dtick == 20


@pytest.mark.parametrize("costs", [(20, 20), (21, 22), (20, 90), (0.01, 0.02), (1, 30), (0.001, 900)])
def test_the_cost_axis_has_round_ticks_however_near_or_far_the_costs_lie(costs: tuple[float, float]) -> None:
    figure = accuracy_by_cost([TradeoffRow("site", costs[0], 0.5), TradeoffRow("icl", costs[1], 0.5)])
    low, high = figure.layout.xaxis.range
    assert high - low >= 0.49, "small differences must not look large"
    ticks = figure.layout.xaxis.tickvals
    assert 3 <= len(ticks) <= 8
    assert all(low <= math.log10(tick) <= high for tick in ticks)
    for tick, text in zip(ticks, figure.layout.xaxis.ticktext, strict=True):
        assert float(text.replace(",", "")) == pytest.approx(tick)
        assert len(text.replace(",", "").replace(".", "").strip("0")) <= 2


def test_each_marker_has_its_name_beside_it_and_names_stand_on_nothing() -> None:
    random = np.random.default_rng(1)
    for spread in (0.03, 0.3, 2.0):
        costs, shares = 20 * 10 ** (spread * random.random(14)), 0.3 + 0.5 * random.random(14)
        rows = [
            TradeoffRow(method, cost, share, share - 0.02, share + 0.02)
            for method, cost, share in zip(METHODS, costs.tolist(), shares.tolist(), strict=True)
        ]
        figure = accuracy_by_cost(rows)
        assert [note.text for note in figure.layout.annotations] == METHODS
        for note, row in zip(figure.layout.annotations, rows, strict=True):
            assert (note.x, note.y) == pytest.approx((math.log10(row.x), 100 * row.value))
        boxes = label_boxes(figure)
        for one, other in itertools.combinations(range(14), 2):
            assert not overlaps(boxes[one], boxes[other]), f"{METHODS[one]} and {METHODS[other]} at {spread}"
        assert all(box[0] > 0 and box[2] < 810 and box[1] > 0 for box in boxes)


def test_names_of_close_neighbours_go_apart_and_depend_on_nothing_but_the_points() -> None:
    points, sizes = [(50.0, 50.0), (58.0, 50.0)], [(20.0, 10.0)] * 2
    panel = (0.0, 0.0, 100.0, 100.0)
    assert [across for across, _ in label_places(points, sizes, [], panel)] == [-19, 19]
    assert [across for across, _ in label_places(points[::-1], sizes, [], panel)] == [19, -19]
    (edge,) = label_places([(95.0, 50.0)], sizes[:1], [], panel)
    assert edge[0] < 0, "on the left where the right is outside"
    (barred,) = label_places([(50.0, 50.0)], sizes[:1], [(55.0, 0.0, 100.0, 100.0)], panel)
    assert barred[0] < 0, "not on a bar"
    narrow, shelf = (38.0, 0.0, 62.0, 100.0), (0.0, 58.0, 100.0, 62.0)
    upper, _ = label_places([(50.0, 50.0), (50.0, 26.0)], sizes, [shelf], narrow)
    assert upper == (0, 26), "rather farther off than nearer to another marker than to its own"


def test_a_name_far_from_its_marker_is_led_to_it_and_no_line_lengthens_an_interval() -> None:
    crowd = [TradeoffRow(method, 20, 0.5, 0.45, 0.55) for method in METHODS]
    figure = accuracy_by_cost(crowd)
    led = [note for note in figure.layout.annotations if note.showarrow]
    assert len(led) > 1
    half_bar = 5 / 102 * (figure.layout.height - figure.layout.margin.t - figure.layout.margin.b)
    for note in led:
        assert note.arrowcolor == METHOD_COLOURS[note.text]
        assert note.xanchor != "center" or note.standoff > half_bar
    (alone,) = accuracy_by_cost(crowd[:1]).layout.annotations
    assert not alone.showarrow
    assert (alone.xanchor, alone.xshift) == ("left", pytest.approx(9))


@pytest.mark.parametrize("draw", [accuracy_by_labels, accuracy_by_cost])
def test_texts_from_outside_are_never_markup(draw: Any) -> None:
    figure = draw([TradeoffRow(ATTACK, 10, 0.5), TradeoffRow("<b>&", 50, 0.5)], title=ATTACK, metric=ATTACK)
    assert {part.name for part in figure.data} == {ESCAPED, "&lt;b&gt;&amp;"}
    assert named(figure, ESCAPED).customdata[0].startswith(f"{ESCAPED}, 10 ")
    assert figure.layout.title.text == ESCAPED
    assert figure.layout.yaxis.title.text == f"{ESCAPED} (%)"
    assert any(note.text.startswith("&lt;b&gt;&amp;") for note in figure.layout.annotations)
    assert not any("<" in note.text for note in figure.layout.annotations)
    page = figure.to_html(include_plotlyjs=False)
    assert "<script>alert" not in page
    assert "<b>x</b>" not in page
    assert "alert(1)" in page


def test_the_name_of_the_cost_is_escaped_on_the_axis_and_under_the_pointer() -> None:
    figure = accuracy_by_cost([TradeoffRow("site", 10, 0.5)], cost=ATTACK)
    assert figure.layout.xaxis.title.text == ESCAPED
    assert figure.data[0].customdata[0] == f"site, 10 {ESCAPED}: 50.0 %"


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "there are no rows"),
        ([TradeoffRow("icl", 10, 45)], r"outside \[0, 1\]"),
        ([TradeoffRow("icl", 10, -0.1)], r"outside \[0, 1\]"),
        ([TradeoffRow("icl", 10, math.nan)], r"outside \[0, 1\]"),
        ([TradeoffRow("icl", -1, 0.5)], "negative or not finite"),
        ([TradeoffRow("icl", math.inf, 0.5)], "negative or not finite"),
        ([TradeoffRow("icl", math.nan, 0.5)], "negative or not finite"),
        ([TradeoffRow("icl", 10, 0.5), TradeoffRow("icl", 10.0, 0.6)], "stands twice"),
    ],
)
def test_rows_that_cannot_be_shown_truly_are_refused(rows: list[TradeoffRow], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^Cannot draw accuracy by labels: .*{problem}"):
        accuracy_by_labels(rows)
    with pytest.raises(ValueError, match=f"^Cannot draw accuracy by cost: .*{problem}"):
        accuracy_by_cost(rows)


def test_what_has_no_place_on_a_log_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="Cannot draw accuracy by cost: a cost is 0"):
        accuracy_by_cost([TradeoffRow("icl", 10, 0.5), TradeoffRow("majority", 0, 0.5)])
    with pytest.raises(ValueError, match="Cannot draw accuracy by labels: no method has labels"):
        accuracy_by_labels([TradeoffRow("zero_shot", 0, 0.5)])


def test_one_method_may_stand_at_several_costs_and_two_at_one() -> None:
    figure = accuracy_by_cost([TradeoffRow("icl", 20, 0.5), TradeoffRow("icl", 10, 0.4), TradeoffRow("site", 10, 0.4)])
    assert list(named(figure, "icl").x) == [10, 20]
    assert sorted(note.text for note in figure.layout.annotations) == ["icl", "icl", "site"]
