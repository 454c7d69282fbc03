"""Figures show the numbers they are given, name what they show, and let no text act as markup."""

import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.io as pio
import pytest

from site_interp.plots import (
    METHOD_COLOURS,
    AccuracyRow,
    accuracy_bars,
    fitting_curve,
    head_map,
    method_colour,
)

ATTACK = "file/<script>alert(1)</script> & <b>x</b>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;x&lt;/b&gt;"


class FakeTensor:
    """Numbers that need detach and cpu before numpy may see them."""

    def __init__(self, values: Any, ready: int = 0) -> None:
        self.values, self.ready = values, ready

    def detach(self) -> "FakeTensor":
        return FakeTensor(self.values, self.ready + 1)

    def cpu(self) -> "FakeTensor":
        return FakeTensor(self.values, self.ready + 1)

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        assert self.ready == 2, "still on the graph or on the device"
        return np.asarray(self.values, dtype=dtype)


def trace(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "train_loss": [4.0, 3.0, 2.0, 1.0],
        "valid_steps": [1, 2, 4],
        "valid_loss": [5.0, 1.5, 2.5],
        "chosen_step": 2,
    }
    return SimpleNamespace(**{**fields, **changes})


def named(figure: Any, name: str) -> list[Any]:
    return [part for part in figure.data if part.name == name]


def test_a_head_map_shows_alpha_on_a_scale_fixed_to_0_and_1() -> None:
    alpha = np.array([[0.25, 0.5, 0.3], [0.4, 0.6, 0.35]])
    (heat,) = head_map(alpha).data
    assert (heat.zmin, heat.zmax) == (0, 1)
    assert np.array_equal(np.asarray(heat.z).T, alpha)


def test_a_head_map_names_each_cell_by_its_layer_and_head() -> None:
    alpha = np.arange(6).reshape(2, 3) / 10
    figure = head_map(alpha)
    (heat,) = figure.data
    for layer in range(2):
        for head in range(3):
            assert heat.customdata[head][layer] == f"L{layer}H{head}"
            assert heat.z[head][layer] == alpha[layer, head]
    assert heat.hovertemplate == "%{customdata} alpha %{z:.2f}<extra></extra>"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("layer", "head")


@pytest.mark.parametrize(("n_layers", "n_heads"), [(30, 9), (18, 4), (32, 32), (80, 64)])
def test_a_head_map_of_a_real_model_has_cells_and_ticks_of_readable_size(n_layers: int, n_heads: int) -> None:
    figure = head_map(np.zeros((n_layers, n_heads)))
    layout = figure.layout
    plot_height = layout.height - layout.margin.t - layout.margin.b
    assert layout.width == 900
    assert plot_height / n_heads >= 8
    assert max(len(layout.xaxis.tickvals), len(layout.yaxis.tickvals)) <= 17
    assert layout.xaxis.tickvals[0] == 0
    assert layout.xaxis.tickvals[-1] < n_layers


@pytest.mark.parametrize("alpha", [[0.5], [], [[1.5]], [[-0.1]], [[math.nan]]])
def test_a_head_map_refuses_what_is_no_matrix_of_shares(alpha: list[Any]) -> None:
    with pytest.raises(ValueError, match="Cannot draw a head map"):
        head_map(alpha)


def test_tensors_are_taken_off_graph_and_device_and_lists_are_welcome() -> None:
    values = [[0.1, 0.9]]
    assert np.array_equal(head_map(FakeTensor(values)).data[0].z, head_map(values).data[0].z)
    drawn = fitting_curve({"a": trace(valid_loss=FakeTensor([5.0, 1.5, 2.5]))})
    assert drawn.to_json() == fitting_curve({"a": trace()}).to_json()


def test_each_method_has_its_own_colour_in_every_figure() -> None:
    floors = {"echo", "majority"}
    colours = [colour for name, colour in METHOD_COLOURS.items() if name not in floors]
    assert len(set(colours)) == len(colours)
    first = accuracy_bars([AccuracyRow("a", "site", 0.5), AccuracyRow("a", "icl", 0.4)])
    second = accuracy_bars([AccuracyRow("b", "zero_shot", 0.1), AccuracyRow("b", "site", 0.5)])
    for figure in (first, second):
        assert named(figure, "site")[0].marker.color == METHOD_COLOURS["site"] == method_colour("site")
    assert named(first, "icl")[0].marker.color == METHOD_COLOURS["icl"]


def test_the_colours_cover_every_method_name() -> None:
    names = (
        "zero_shot icl many_shot_icl site function_vector task_vector mtv i2cl ltv lora ia3 prompt_tuning mha_esp "
        "u_esp p_esp idpg knn majority echo"
    )
    assert set(METHOD_COLOURS) == set(names.split())
    assert method_colour("someone's own") not in METHOD_COLOURS.values()


def test_bars_and_intervals_are_the_given_shares_in_percent() -> None:
    rows = [
        AccuracyRow("a", "icl", 0.5, 0.25, 0.625),
        AccuracyRow("b", "icl", 0.75, None, None),
        AccuracyRow("a", "site", 1.0, math.nan, math.nan),
        AccuracyRow("b", "site", 0.0, 0.0, 0.5),
    ]
    figure = accuracy_bars(rows, metric="prefix match")
    icl, site = figure.data
    assert (list(icl.y), list(site.y)) == ([50, 75], [100, 0])
    assert (list(icl.error_y.arrayminus), list(icl.error_y.array)) == ([25, None], [12.5, None])
    assert (list(site.error_y.arrayminus), list(site.error_y.array)) == ([None, 0], [None, 50])
    assert list(icl.customdata) == ["a, icl: 50.0 % [25.0, 62.5]", "b, icl: 75.0 %"]
    assert figure.layout.yaxis.title.text == "prefix match (%)"
    assert figure.layout.yaxis.range[0] == 0
    assert 100 <= figure.layout.yaxis.range[1] < 105


def test_bars_of_one_task_stand_side_by_side_over_its_name() -> None:
    methods = ["zero_shot", "icl", "site"]
    figure = accuracy_bars([AccuracyRow(task, method, 0.5) for task in "ab" for method in methods])
    left = [bar.x[0] - bar.width / 2 for bar in figure.data]
    right = [bar.x[0] + bar.width / 2 for bar in figure.data]
    assert all(end <= start for end, start in zip(right[:-1], left[1:], strict=True))
    assert left[0] > -0.5
    assert right[-1] < 0.5
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(0)
    assert [bar.x[1] - bar.x[0] for bar in figure.data] == pytest.approx([1, 1, 1])
    assert list(figure.layout.xaxis.ticktext) == ["a", "b"]


def test_a_method_without_a_task_leaves_its_place_empty() -> None:
    rows = [AccuracyRow("a", "icl", 0.5), AccuracyRow("b", "icl", 0.5), AccuracyRow("b", "site", 0.25)]
    (site,) = named(accuracy_bars(rows), "site")
    assert list(site.y) == [25]
    assert 1.0 < site.x[0] < 1.5


def test_floors_are_lines_across_a_task_and_take_no_room_from_the_bars() -> None:
    bars = [AccuracyRow("a", "icl", 0.5), AccuracyRow("a", "site", 0.75)]
    figure = accuracy_bars([AccuracyRow("a", "echo", 0.125), AccuracyRow("a", "majority", 0.25), *bars])
    assert [part.type for part in figure.data] == ["bar", "bar", "scatter", "scatter"]
    assert figure.data[:2] == accuracy_bars(bars).data
    (echo,), (majority,) = named(figure, "echo"), named(figure, "majority")
    assert list(echo.y[:2]) == [12.5, 12.5]
    assert list(majority.y[:2]) == [25, 25]
    assert echo.line.color == METHOD_COLOURS["echo"]
    assert echo.line.dash != majority.line.dash


def test_many_tasks_go_on_several_rows_and_each_method_into_the_legend_once() -> None:
    tasks = [f"fv/task_{number}" for number in range(30)]
    rows = [AccuracyRow(task, "icl", 0.5) for task in tasks] + [AccuracyRow(tasks[-1], "site", 0.5)]
    figure = accuracy_bars(rows)
    axes = [figure.layout.xaxis, figure.layout.xaxis2, figure.layout.xaxis3]
    assert [text for axis in axes for text in axis.ticktext] == [task.removeprefix("fv/") for task in tasks]
    assert axes[-1].title.text == "task (fv)"
    assert sum(len(bar.y) for bar in named(figure, "icl")) == 30
    for method in ("icl", "site"):
        assert [bar.showlegend for bar in named(figure, method)].count(True) == 1
    assert [bar.showlegend for bar in named(figure, "site") if len(bar.y)] == [True]


def test_a_long_task_name_is_shortened_under_the_bars_and_whole_under_the_pointer() -> None:
    name = "file/" + "a" * 30 + "b" * 30
    figure = accuracy_bars([AccuracyRow(name, "icl", 0.5), AccuracyRow("file/alphabetically_first_3", "icl", 0.5)])
    assert list(figure.layout.xaxis.ticktext) == ["a" * 11 + "…" + "b" * 12, "alphabetically_first_3"]
    assert figure.data[0].customdata[0].startswith(name)


def test_task_names_of_several_sources_stay_whole() -> None:
    figure = accuracy_bars([AccuracyRow("fv/antonym", "icl", 0.5), AccuracyRow("bbh/snarks", "icl", 0.5)])
    assert list(figure.layout.xaxis.ticktext) == ["fv/antonym", "bbh/snarks"]
    assert figure.layout.xaxis.title.text == "task"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [AccuracyRow("a", "icl", 0.5), AccuracyRow("a", "icl", 0.6)],
        [AccuracyRow("a", "icl", 45.0)],
        [AccuracyRow("a", "icl", math.nan)],
    ],
)
def test_accuracy_bars_refuse_rows_they_cannot_show_truly(rows: list[AccuracyRow]) -> None:
    with pytest.raises(ValueError, match="Cannot draw accuracy bars"):
        accuracy_bars(rows)


def test_a_fitting_curve_shows_both_losses_and_marks_the_step_kept() -> None:
    figure = fitting_curve({"antonym": trace()}, title="antonym")
    (train,), (valid,), (kept,) = (named(figure, name) for name in ("training", "validation", "step kept"))
    assert (list(train.x), list(train.y)) == ([1, 2, 3, 4], [4, 3, 2, 1])
    assert (list(valid.x), list(valid.y)) == ([1, 2, 4], [5, 1.5, 2.5])
    assert "markers" in valid.mode
    assert train.mode == "lines"
    assert (list(kept.x), list(kept.y)) == ([2], [1.5])
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("step", "loss (nats)")
    assert figure.layout.yaxis.range[0] == 0
    assert figure.layout.yaxis.range[1] > 5


def test_a_step_kept_between_validations_is_marked_on_the_line_and_without_validation_nothing_is() -> None:
    (kept,) = named(fitting_curve({"a": trace(chosen_step=3)}), "step kept")
    assert (list(kept.x), list(kept.y)) == ([3], [2.0])
    assert not named(fitting_curve({"a": trace(valid_steps=[], valid_loss=[])}), "step kept")


def test_several_fits_have_a_panel_each_on_shared_axes_and_one_legend() -> None:
    figure = fitting_curve({"a": trace(), "b": trace(), "c": trace(), "d": trace(train_loss=[9.0] * 4)})
    assert [note.text for note in figure.layout.annotations] == ["a", "b", "c", "d"]
    assert [part.xaxis for part in named(figure, "training")] == ["x", "x2", "x3", "x4"]
    assert len({figure.layout[f"yaxis{number}"].range for number in ("", 2, 3, 4)}) == 1
    for name in ("training", "validation", "step kept"):
        assert [part.showlegend for part in named(figure, name)].count(True) == 1
    labelled = [figure.layout[f"xaxis{number}"].title.text for number in ("", 2, 3, 4)]
    assert labelled == [None, "step", "step", "step"]


def test_steps_without_losses_are_refused() -> None:
    with pytest.raises(ValueError, match="Cannot draw the fit of a: give one loss for each step"):
        fitting_curve({"a": trace(valid_steps=[1])})
    with pytest.raises(ValueError, match="there is none"):
        fitting_curve({})


def test_texts_from_outside_are_shown_as_they_are_and_never_as_markup() -> None:
    bars = accuracy_bars([AccuracyRow(ATTACK, ATTACK, 0.5)], title=ATTACK, metric=ATTACK)
    heads = head_map([[0.5]], title=ATTACK)
    curves = fitting_curve({ATTACK: trace(), "b": trace()}, title=ATTACK)
    assert bars.layout.title.text == heads.layout.title.text == f"file/{ESCAPED}"
    assert list(accuracy_bars([AccuracyRow("file/<b>x</b>&", "icl", 0.5)]).layout.xaxis.ticktext) == [
        "&lt;b&gt;x&lt;/b&gt;&amp;"
    ]
    assert bars.data[0].name == f"file/{ESCAPED}"
    assert bars.layout.yaxis.title.text == f"file/{ESCAPED} (%)"
    assert curves.layout.annotations[0].text == f"file/{ESCAPED}"
    for figure in (bars, heads, curves):
        page = figure.to_html(include_plotlyjs=False)
        assert "<script>alert" not in page
        assert "<b>x</b>" not in page
        assert "alert(1)" in page


def test_drawing_changes_no_setting_of_plotly() -> None:
    before = pio.templates.default
    figure = head_map([[0.5]])
    assert pio.templates.default == before
    assert figure.layout.template.layout.plot_bgcolor == "white"


def test_plots_need_no_torch() -> None:
    code = "import sys, site_interp.plots; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
