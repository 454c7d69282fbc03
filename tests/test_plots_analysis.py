"""The figures of the analyses show the numbers they are given, at the place and in the colour they promise."""

import math
from typing import Any

import numpy as np
import pytest

from site_interp.plots import (
    METHOD_COLOURS,
    RANKING_COLOURS,
    CatalogueRow,
    CurveBand,
    CurveLine,
    CurvePanel,
    Joint,
    alpha_distribution,
    dendrogram_joints,
    effect_map,
    head_catalogue,
    head_map,
    interval_bars,
    patching_curve,
    patching_curves,
    ranking_colour,
    task_matrix,
)

ATTACK = "<script>alert(1)</script> & <b>x</b>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;x&lt;/b&gt;"
# Tasks 0 and 2 join at 0.3; their cluster, number 3, joins task 1 at 0.7.
MERGES = [[0, 2, 0.3, 2], [1, 3, 0.7, 3]]
ORDER = [1, 0, 2]
SIDES: dict[str, Any] = {"row_title": "source", "column_title": "target", "label": "first_token"}


class OnDevice:
    """Numbers that need detach and cpu before numpy may see them."""

    def __init__(self, values: Any, ready: int = 0) -> None:
        self.values, self.ready = values, ready

    def detach(self) -> "OnDevice":
        return OnDevice(self.values, self.ready + 1)

    def cpu(self) -> "OnDevice":
        return OnDevice(self.values, self.ready + 1)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        assert self.ready == 2, "still on the graph or on the device"
        return np.asarray(self.values, dtype=dtype)


def line(name: str = "top alpha", **changes: Any) -> CurveLine:
    fields: dict[str, Any] = {
        "shares": [0, 10, 50],
        "ks": [0, 27, 135],
        "values": [0.0, 0.25, 0.75],
        "lows": [0.0, 0.125, math.nan],
        "highs": [0.0, 0.5, math.nan],
    }
    return CurveLine(name, **{**fields, **changes})


def band(name: str = "random") -> CurveBand:
    return CurveBand(name, [10, 50], [0.1, 0.3], [0.05, 0.2], [0.2, 0.5], 20)


def catalogue(**changes: Any) -> CatalogueRow:
    fields: dict[str, Any] = {
        "layer": 5,
        "head": 3,
        "alphas": {"antonym": 0.25, "capitalize": 0.75},
        "n_tasks": 1,
        "induction": 0.5,
        "previous": 0.125,
    }
    return CatalogueRow(**{**fields, **changes})


def named(figure: Any, name: str) -> list[Any]:
    """The traces of a name that have something under the pointer."""
    return [part for part in figure.data if part.name == name and part.customdata is not None]


def test_an_effect_map_has_a_scale_as_long_below_0_as_above_and_white_at_0() -> None:
    effects = np.array([[0.125, -0.5, 0.0], [0.25, 0.0, 0.375]])
    (heat,) = effect_map(effects).data
    assert (heat.zmin, heat.zmax) == (-0.5, 0.5)
    assert np.array_equal(np.asarray(heat.z).T, effects)
    scale = dict(heat.colorscale)
    assert scale[0.5] == "#ffffff"
    assert len(scale) == 5
    (nothing,) = effect_map([[0.0, 0.0]]).data
    assert nothing.zmin == -nothing.zmax < 0


def test_an_effect_map_says_head_sign_and_unit_under_the_pointer_and_what_the_colours_mean() -> None:
    (heat,) = effect_map([[0.5, 0.25], [-0.125, 0.12]], unit="nats").data
    assert heat.customdata[1][0] == "L0H1 effect +0.25 nats"
    assert heat.customdata[0][1] == "L1H0 effect -0.125 nats"
    assert heat.customdata[1][1] == "L1H1 effect +0.12 nats"
    assert "effect (nats)" in heat.colorbar.title.text
    assert "likelier" in heat.colorbar.title.text


def test_effects_and_alpha_lie_on_the_same_cells() -> None:
    values = np.full((30, 9), 0.5)
    effects, alpha = effect_map(values).layout, head_map(values).layout
    assert (effects.height, effects.xaxis, effects.yaxis) == (alpha.height, alpha.xaxis, alpha.yaxis)
    assert list(effects.yaxis.range) == [8.5, -0.5]


def test_tiny_cells_touch_so_that_their_edges_do_not_hide_them() -> None:
    assert head_map(np.zeros((30, 9))).data[0].xgap == 1
    assert head_map(np.zeros((80, 64))).data[0].xgap == 0


@pytest.mark.parametrize("effects", [[0.5], [], [[math.nan]], [[math.inf]]])
def test_an_effect_map_refuses_what_is_no_matrix_of_numbers(effects: list[Any]) -> None:
    with pytest.raises(ValueError, match="Cannot draw an effect map"):
        effect_map(effects)


def test_each_order_of_heads_has_its_own_colour_and_random_is_grey() -> None:
    names = ["top alpha", "bottom alpha", "indirect effect", "indirect effect (shuffled)", "attribution", "random"]
    assert list(RANKING_COLOURS) == names
    assert len(set(RANKING_COLOURS.values())) == len(names)
    grey = RANKING_COLOURS["random"]
    assert grey[1:3] == grey[3:5] == grey[5:7]
    assert ranking_colour("attribution") == RANKING_COLOURS["attribution"]
    assert ranking_colour("someone's own") not in RANKING_COLOURS.values()
    figure = patching_curve([line(name) for name in names[:-1]], band=band(), ylabel="score")
    for name in names[:-1]:
        (drawn,) = named(figure, name)
        assert drawn.line.color == RANKING_COLOURS[name]
    assert len({named(figure, name)[0].marker.symbol for name in names[:-1]}) == 5


def test_a_patching_curve_shows_shares_scores_and_k_with_the_interval() -> None:
    figure = patching_curve([line()], ylabel="first_token", title="antonym")
    (drawn,) = named(figure, "top alpha")
    assert (list(drawn.x), list(drawn.y)) == ([0, 10, 50], [0.0, 0.25, 0.75])
    assert list(drawn.customdata) == [
        "top alpha, 0 % of heads (k = 0): 0.00 [0.00, 0.00]",
        "top alpha, 10 % of heads (k = 27): 0.25 [0.12, 0.50]",
        "top alpha, 50 % of heads (k = 135): 0.75",
    ]
    assert figure.layout.xaxis.title.text == "share of heads (%), number of heads"
    ticks = dict(zip(figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext, strict=True))
    assert ticks == {0: "0<br>0", 10: "10<br>27", 30: "30", 50: "50<br>135", 70: "70", 100: "100"}
    assert figure.layout.yaxis.title.text == "first_token"
    assert figure.layout.xaxis.range[0] < 0
    assert figure.layout.xaxis.range[1] > 100


def test_the_interval_is_an_area_over_the_shares_where_it_is_known() -> None:
    area, _ = patching_curve([line()], ylabel="score").data
    assert list(area.x) == [0, 10, 10, 0]
    assert list(area.y) == [0.0, 0.5, 0.125, 0.0]
    assert area.fill == "toself"
    assert area.fillcolor.startswith("rgba(0, 114, 178, 0.")
    assert area.hoverinfo == "skip"


def test_random_sets_are_a_grey_area_with_their_mean_and_number_of_draws() -> None:
    figure = patching_curve([line()], band=band(), ylabel="score")
    area, mean = figure.data[:2]
    assert (list(area.x), list(area.y)) == ([10, 50, 50, 10], [0.2, 0.5, 0.2, 0.05])
    assert (list(mean.x), list(mean.y), mean.name) == ([10, 50], [0.1, 0.3], "random (20 draws)")
    assert mean.line.color == RANKING_COLOURS["random"]
    assert mean.customdata[1] == "random (20 draws), 50 % of heads: 0.30 [0.20, 0.50]"


def test_references_are_dashed_lines_named_at_the_right_edge_without_standing_on_each_other() -> None:
    references = [("adapter", 0.75), ("ten-shot", 0.75), ("zero-shot", 0)]
    figure = patching_curve([line()], references=references, ylabel="score")
    for name, value in references:
        (drawn,) = named(figure, name)
        assert list(drawn.y) == [value, value]
        assert drawn.line.dash != "solid"
        assert not drawn.showlegend
    labels = {note.text: note.y for note in figure.layout.annotations}
    assert set(labels) == {"adapter 0.75", "ten-shot 0.75", "zero-shot 0.00"}
    low, high = figure.layout.yaxis.range
    plot_height = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    apart = (labels["ten-shot 0.75"] - labels["adapter 0.75"]) / (high - low) * plot_height
    assert abs(apart) >= 15
    assert all(low <= height <= high for height in labels.values())
    assert figure.layout.margin.r > 7 * len("ten-shot 0.75")


def test_log_probabilities_below_0_have_room_and_so_have_intervals_and_references() -> None:
    low_line = line(values=[-6.0, -4.0, -2.0], lows=[-7.0, -5.0, -3.0], highs=[-5.0, -3.0, -1.0])
    low, high = patching_curve([low_line], ylabel="nats").layout.yaxis.range
    assert -8 < low < -7
    assert -1 < high < 0
    low, high = patching_curve([low_line], references=[("adapter", -0.5)], ylabel="nats").layout.yaxis.range
    assert -0.5 < high < 0.5
    low, high = patching_curve([line()], ylabel="share").layout.yaxis.range
    assert -0.1 < low < 0
    assert 0.75 < high < 0.9


def test_several_tasks_have_a_panel_each_on_the_same_axes_with_one_legend() -> None:
    panel = CurvePanel([line(), line("bottom alpha")], band(), [("adapter", 0.9)])
    figure = patching_curves(dict.fromkeys(("a", "b", "c", "d"), panel), ylabel="first_token")
    assert [note.text for note in figure.layout.annotations] == ["a", "b", "c", "d"]
    assert [part.xaxis for part in named(figure, "top alpha")] == ["x", "x2", "x3", "x4"]
    for name in ("top alpha", "bottom alpha", "adapter", "random (20 draws)"):
        assert [part.showlegend for part in named(figure, name)].count(True) == 1
    assert sum(bool(part.showlegend) for part in figure.data) == 4
    assert len({figure.layout[f"yaxis{number}"].range for number in ("", 2, 3, 4)}) == 1
    titles = [figure.layout[f"xaxis{number}"].title.text for number in ("", 2, 3, 4)]
    assert titles == [None, None, *["share of heads (%), number of heads"] * 2], "four panels stand two by two"
    assert figure.layout.yaxis.title.text == figure.layout.yaxis3.title.text == "first_token"


def test_a_line_that_only_a_later_panel_has_is_in_the_legend() -> None:
    figure = patching_curves(
        {"a": CurvePanel([line()]), "b": CurvePanel([line(), line("attribution")])}, ylabel="score"
    )
    assert [part.name for part in figure.data if part.showlegend] == ["top alpha", "attribution"]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "no lines"),
        ([line(), line()], "stands twice"),
        ([line(ks=[0, 27])], "differ in number"),
        ([line(shares=[0, 10, 500])], "outside 0 to 100"),
        ([line(values=[0.0, math.nan, 1.0])], "not finite"),
    ],
)
def test_curves_that_cannot_be_shown_truly_are_refused(lines: list[CurveLine], problem: str) -> None:
    with pytest.raises(ValueError, match=f"Cannot draw .*curve.*{problem}"):
        patching_curve(lines, ylabel="score")
    with pytest.raises(ValueError, match="there is no task"):
        patching_curves({}, ylabel="score")


def test_joints_of_three_tasks_stand_where_paper_and_pencil_put_them() -> None:
    # Left to right stand 1, 0, 2. Tasks 0 and 2 stand at 1 and 2, their cluster midway at 1.5, task 1 at 0.
    assert dendrogram_joints(MERGES, ORDER) == [
        Joint((1.0, 2.0), (0.0, 0.0), 0.3),
        Joint((0.0, 1.5), (0.0, 0.3), 0.7),
    ]


def test_a_joint_names_the_left_part_first_however_the_merge_lists_them() -> None:
    # Left to right stand 2, 0, 1: the cluster of 2 and 0 is at 0.5, task 1 at 2.
    assert dendrogram_joints(MERGES, [2, 0, 1]) == [
        Joint((0.0, 1.0), (0.0, 0.0), 0.3),
        Joint((0.5, 2.0), (0.3, 0.0), 0.7),
    ]


@pytest.mark.parametrize(
    ("merges", "order", "problem"),
    [
        (MERGES, [0, 1, 2], "tears a cluster apart"),
        (MERGES, [0, 1], "do not join 2 leaves"),
        (MERGES, [0, 2, 2], "do not join 3 leaves"),
        (MERGES[:1], ORDER, "do not join 3 leaves"),
    ],
)
def test_an_order_that_does_not_fit_the_merges_is_refused(merges: Any, order: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=f"Cannot draw a dendrogram.*{problem}"):
        dendrogram_joints(merges, order)


def test_a_task_matrix_in_an_order_keeps_each_number_with_its_row_and_column() -> None:
    values = np.arange(9).reshape(3, 3) / 10
    figure = task_matrix(values, ["a", "b", "c"], ["a", "b", "c"], order=ORDER, **SIDES)
    (heat,) = figure.data
    # By hand: rows 0.0 0.1 0.2 / 0.3 0.4 0.5 / 0.6 0.7 0.8, taken in the order 1, 0, 2 both ways.
    expected = [[0.4, 0.3, 0.5], [0.1, 0.0, 0.2], [0.7, 0.6, 0.8]]
    assert np.array_equal(np.asarray(heat.z, dtype=float), expected)
    assert [list(line) for line in heat.text] == [[f"{value:.2f}" for value in line] for line in expected]
    assert heat.texttemplate == "%{text}"
    assert list(figure.layout.xaxis.ticktext) == list(figure.layout.yaxis.ticktext) == ["b", "a", "c"]
    assert heat.customdata[0][2] == "source: b<br>target: c<br>first_token: 0.50"
    assert (figure.layout.yaxis.title.text, figure.layout.xaxis.title.text) == ("source", "target")
    assert (heat.zmin, heat.zmax, heat.colorbar.title.text) == (0, 1, "first_token")
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]


def test_rows_and_columns_may_differ_and_a_shared_source_moves_into_the_title() -> None:
    figure = task_matrix([[0.1, 0.2, 0.3]], ["bundled/a"], ["fv/x", "fv/y", "bbh/z"], **SIDES)
    assert list(figure.layout.yaxis.ticktext) == ["a"]
    assert list(figure.layout.xaxis.ticktext) == ["fv/x", "fv/y", "bbh/z"]
    assert (figure.layout.yaxis.title.text, figure.layout.xaxis.title.text) == ("source (bundled)", "target")
    assert figure.data[0].customdata[0][0].startswith("source: bundled/a<br>target: fv/x<br>")


def test_the_dendrogram_stands_above_the_columns_on_a_distance_axis_from_0() -> None:
    figure = task_matrix(np.eye(3), list("abc"), list("abc"), order=ORDER, merges=MERGES, **SIDES)
    _, tree = figure.data
    assert list(tree.x) == [1, 1, 2, 2, None, 0, 0, 1.5, 1.5, None]
    assert list(tree.y) == [0, 0.3, 0.3, 0, None, 0, 0.7, 0.7, 0.3, None]
    assert tree.xaxis in (None, "x")
    assert tree.yaxis == "y2"
    assert list(figure.layout.xaxis.tickvals) == [0, 1, 2]
    above = figure.layout.yaxis2
    assert above.range[0] == 0
    assert 0.7 < above.range[1] < 0.8
    assert above.title.text == "1 − similarity"
    assert figure.layout.yaxis.domain[1] < above.domain[0]
    assert tree.customdata[1] == "joined at distance 0.30"


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.25), (-0.25, 0.5), (0, 0.5)])
def test_a_diverging_matrix_has_0_in_the_middle_of_its_scale(low: float, high: float) -> None:
    (heat,) = task_matrix([[-0.5, 0.25]], ["a"], ["b", "c"], low=low, high=high, diverging=True, **SIDES).data
    assert (heat.zmin, heat.zmax) == (-0.5, 0.5)
    assert dict(heat.colorscale)[0.5] == "#ffffff"


def test_an_unknown_cell_is_empty_grey_and_says_so_and_no_zero_is_negative() -> None:
    figure = task_matrix([[None, math.nan, -0.001]], ["a"], ["x", "y", "z"], **SIDES)
    (heat,) = figure.data
    assert list(heat.z[0]) == [None, None, -0.001]
    assert list(heat.text[0]) == ["", "", "0.00"]
    assert heat.hoverongaps
    assert heat.customdata[0][0] == "source: a<br>target: x<br>first_token: unknown"
    (behind,) = figure.layout.shapes
    assert (behind.x0, behind.x1, behind.y0, behind.y1) == (-0.5, 2.5, -0.5, 0.5)
    assert behind.fillcolor == "#d0d0d0"
    assert behind.layer == "below"


@pytest.mark.parametrize("n_tasks", [2, 12, 40])
def test_the_cells_of_a_task_matrix_are_square_and_inside_the_figure(n_tasks: int) -> None:
    names = [f"bundled/alphabetically_first_{number}" for number in range(n_tasks)]
    layout = task_matrix(np.eye(n_tasks), names, names, **SIDES).layout
    width = (layout.width - layout.margin.l - layout.margin.r) * layout.xaxis.domain[1]
    height = (layout.height - layout.margin.t - layout.margin.b) * layout.yaxis.domain[1]
    assert width / n_tasks == pytest.approx(height / n_tasks, abs=0.5)
    assert layout.xaxis.domain[1] <= 1
    assert layout.margin.l > 7 * len("alphabetically_first_1")


def test_a_long_meaning_of_the_numbers_is_broken_into_lines_where_there_are_few_rows() -> None:
    label = "share of the score of the adapter itself"
    sides = {**SIDES, "label": label}
    small = task_matrix(np.eye(2), list("ab"), list("ab"), **sides).layout
    large = task_matrix(np.eye(12), list("abcdefghijkl"), list("abcdefghijkl"), **sides)
    (heat,) = task_matrix(np.eye(2), list("ab"), list("ab"), **sides).data
    lines = heat.colorbar.title.text.split("<br>")
    assert " ".join(lines) == label
    assert 7 * max(map(len, lines)) <= heat.colorbar.len
    assert small.margin.r >= 70 + 18 * len(lines)
    assert large.data[0].colorbar.title.text == label


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"values": [[1.0]]}, "do not fit 2 rows and 2 columns"),
        ({"values": []}, "do not fit"),
        ({"order": [0, 0]}, "each place from 0 to 1 once"),
        ({"low": 1}, "scale from 1 to 1"),
    ],
)
def test_a_task_matrix_that_does_not_fit_is_refused(changes: dict[str, Any], problem: str) -> None:
    given = {"values": np.eye(2), "rows": ["a", "b"], "columns": ["a", "b"], **SIDES, **changes}
    with pytest.raises(ValueError, match=problem):
        task_matrix(given.pop("values"), given.pop("rows"), given.pop("columns"), **given)


def test_bars_reach_to_the_ends_of_their_intervals_and_chance_is_a_labelled_dotted_line() -> None:
    figure = interval_bars(
        [0.5, -0.25],
        [0.25, None],
        [0.75, None],
        ["a", "b"],
        colours=["#111111", "#222222"],
        ylabel="cosine",
        chance=0.1,
    )
    (bars,) = figure.data
    assert (list(bars.y), list(bars.marker.color)) == ([0.5, -0.25], ["#111111", "#222222"])
    assert (bars.error_y.arrayminus[0], bars.error_y.array[0]) == (0.25, 0.25)
    assert math.isnan(bars.error_y.arrayminus[1])
    assert list(bars.customdata) == ["a: 0.50 [0.25, 0.75]", "b: -0.25"]
    assert list(figure.layout.xaxis.ticktext) == ["a", "b"]
    (chance,), (label,) = figure.layout.shapes, figure.layout.annotations
    assert (chance.y0, chance.y1, chance.line.dash) == (0.1, 0.1, "dot")
    assert (label.y, label.text) == (0.1, "chance 0.10")
    assert figure.layout.yaxis.title.text == "cosine"


def test_the_axis_of_bars_begins_at_0_and_has_room_for_intervals_and_for_chance_beyond_them() -> None:
    low, high = interval_bars([0.5], [0.25], [0.75], ["a"], ylabel="cosine").layout.yaxis.range
    assert low == 0
    assert 0.75 < high < 0.85
    low, high = interval_bars([0.5], [0.25], [0.75], ["a"], ylabel="cosine", chance=1).layout.yaxis.range
    assert low == 0
    assert high > 1
    low, high = interval_bars([-0.5], [-0.75], [-0.25], ["a"], ylabel="cosine").layout.yaxis.range
    assert -0.85 < low < -0.75
    assert 0 <= high < 0.1


def test_bars_without_chance_have_no_line_and_one_colour() -> None:
    figure = interval_bars([0.5], [0.25], [0.75], ["a"], ylabel="cosine")
    assert not figure.layout.shapes
    assert not figure.layout.annotations
    assert figure.data[0].marker.color == METHOD_COLOURS["site"]


@pytest.mark.parametrize(
    ("values", "names", "colours"),
    [([], [], None), ([0.5], ["a", "b"], None), ([0.5], ["a"], []), ([math.nan], ["a"], None)],
)
def test_bars_that_cannot_be_shown_truly_are_refused(values: list[float], names: list[str], colours: Any) -> None:
    with pytest.raises(ValueError, match=r"Cannot draw.* bars"):
        interval_bars(values, values, values, names, colours=colours, ylabel="cosine")


def test_alpha_is_counted_in_steps_of_0_05_beside_its_mean_per_layer() -> None:
    alphas = {"a": [[0.01, 0.02], [0.52, 1.0]], "b": [[0.0, 0.0], [0.0, 0.0]]}
    bars, means, others, _ = alpha_distribution(alphas).data
    counted = dict(zip(np.round(bars.x, 3).tolist(), bars.y, strict=True))
    assert len(counted) == 20
    assert {place: share for place, share in counted.items() if share} == {0.025: 50, 0.525: 25, 0.975: 25}
    assert bars.customdata[0] == "alpha 0.00 to 0.05: 50.0 % of heads (2)"
    assert (list(means.x), means.y.tolist()) == ([0, 1], pytest.approx([0.015, 0.76]))
    assert max(others.y) == 100
    assert bars.marker.color == means.line.color != others.marker.color


def test_every_task_has_two_panels_on_shared_axes_and_a_colour_of_its_own() -> None:
    figure = alpha_distribution({f"task_{number}": [[0.5] * 3] * 4 for number in range(12)})
    assert len({bars.marker.color for bars in figure.data[::2]}) == 12
    assert [note.text for note in figure.layout.annotations] == [f"task_{number}" for number in range(12)]
    axes = [figure.layout[f"xaxis{number}"] for number in ["", *range(2, 25)]]
    assert {axis.range for axis in axes[::2]} == {(0, 1)}
    assert {axis.range for axis in axes[1::2]} == {(-0.5, 3.5)}
    assert {axis.title.text for axis in axes[-4::2]} == {"alpha"}
    assert {axis.title.text for axis in axes[-3::2]} == {"layer"}


@pytest.mark.parametrize("alphas", [{}, {"a": [0.5]}, {"a": [[1.5]]}, {"a": [[math.nan]]}])
def test_a_distribution_of_what_is_no_alpha_is_refused(alphas: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Cannot draw .*alpha"):
        alpha_distribution(alphas)


def test_the_catalogue_shows_the_heads_in_use_larger_and_darker_where_more_tasks_use_them() -> None:
    rows = [catalogue(), catalogue(layer=0, head=8, n_tasks=4), catalogue(layer=29, head=0, n_tasks=0)]
    figure = head_catalogue(rows)
    (marks,) = figure.data
    assert (list(marks.x), list(marks.y)) == ([5, 0], [3, 8])
    assert list(marks.marker.size) == list(marks.marker.color) == [1, 4]
    assert (marks.marker.cmin, marks.marker.cmax, marks.marker.sizemode) == (1, 4, "area")
    assert list(figure.layout.xaxis.range) == [-0.5, 29.5]
    assert list(figure.layout.yaxis.range) == [8.5, -0.5]


def test_the_largest_mark_of_the_catalogue_stays_in_its_cell() -> None:
    rows = [catalogue(layer=layer, n_tasks=12) for layer in range(30)]
    figure = head_catalogue(rows)
    marker = figure.data[0].marker
    # plotly's rule for areas: the radius is the root of half of size / sizeref.
    diameter = 2 * math.sqrt(12 / 2 / marker.sizeref)
    assert 10 < diameter < (900 - 90) / 30


def test_the_catalogue_lists_scores_and_the_alpha_of_every_task_under_the_pointer() -> None:
    (marks,) = head_catalogue([catalogue()]).data
    assert marks.customdata[0].split("<br>") == [
        "L5H3: used by 1 of 2 tasks",
        "induction 0.50, previous token 0.12",
        "capitalize: alpha 0.75",
        "antonym: alpha 0.25",
    ]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [([], "no task uses"), ([catalogue(n_tasks=0)], "no task uses"), ([catalogue(), catalogue()], "stands twice")],
)
def test_a_catalogue_without_heads_or_with_one_twice_is_refused(rows: list[CatalogueRow], problem: str) -> None:
    with pytest.raises(ValueError, match=f"Cannot draw a head catalogue.*{problem}"):
        head_catalogue(rows)


def test_tensors_are_welcome_in_every_figure() -> None:
    matrix, row = [[0.25, 0.5]], [0.0, 0.25, 0.75]
    pairs = [
        (effect_map(OnDevice(matrix)), effect_map(matrix)),
        (alpha_distribution({"a": OnDevice(matrix)}), alpha_distribution({"a": matrix})),
        (task_matrix(OnDevice(matrix), ["a"], ["b", "c"], **SIDES), task_matrix(matrix, ["a"], ["b", "c"], **SIDES)),
        (
            interval_bars(OnDevice(row), OnDevice(row), OnDevice(row), list("abc"), ylabel="x"),
            interval_bars(row, row, row, list("abc"), ylabel="x"),
        ),
        (patching_curve([line(values=OnDevice(row))], ylabel="x"), patching_curve([line(values=row)], ylabel="x")),
    ]
    for given, plain in pairs:
        assert given.to_json() == plain.to_json()


def test_texts_from_outside_are_shown_as_they_are_and_never_as_markup() -> None:
    panel = CurvePanel([line(ATTACK)], band(ATTACK + " "), [("of " + ATTACK, 0.5)])
    curve = patching_curve(panel.lines, band=panel.band, references=panel.references, ylabel=ATTACK, title=ATTACK)
    sides = {"row_title": ATTACK, "column_title": ATTACK, "label": ATTACK}
    figures = [
        effect_map([[0.5]], unit=ATTACK, title=ATTACK),
        curve,
        patching_curves({ATTACK: panel, "b": panel}, ylabel=ATTACK, title=ATTACK),
        task_matrix(
            np.eye(3), [ATTACK, "b", "c"], [ATTACK, "b", "c"], order=ORDER, merges=MERGES, title=ATTACK, **sides
        ),
        interval_bars([0.5], [0.4], [0.6], [ATTACK], ylabel=ATTACK, chance=0.1, title=ATTACK),
        alpha_distribution({ATTACK: [[0.5]]}, title=ATTACK),
        head_catalogue([catalogue(alphas={ATTACK: 0.5})], title=ATTACK),
    ]
    for figure in figures:
        assert figure.layout.title.text == ESCAPED
        page = figure.to_json()
        for markup in ("<script", "<b>", "\\u003cscript", "\\u003cb\\u003e"):
            assert markup not in page
    assert named(curve, ESCAPED)[0].customdata[0].startswith(ESCAPED)
    assert figures[-1].data[0].customdata[0].endswith(f"{ESCAPED}: alpha 0.50")


@pytest.mark.parametrize("part", ["mean", "alpha"])
def test_what_holds_numbers_among_others_is_refused_with_the_part_to_give(part: str) -> None:
    holder = type("Holder", (), {part: np.zeros((2, 2))})()
    with pytest.raises(ValueError, match=rf"a Holder as numbers: give its \.{part}"):
        effect_map(holder)
