"""Figures of single results: the values of an evaluation, differences, bounds, a distribution, lists, a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from rankbound.report.figures.panels import color, grid, mark, order_of, tips, zero_line
from rankbound.report.figures.theme import BETTER, NEUTRAL, PALETTE, WORSE, Chart, alt

_LINE = 22  # height of one run's row
_OUTCOMES = {"better": BETTER, "worse": WORSE, "equal": NEUTRAL}


def value_histograms(table: pl.DataFrame, *, title: str) -> Chart:
    """Queries by their value, a panel each: columns panel, low, high, queries, mean."""
    bar = mark("bar", color=PALETTE[0], opacity=0.85).encode(
        x=alt.X("low:Q", bin="binned", title="value of the query"),
        x2="high:Q",
        y=alt.Y("queries:Q", title="queries", axis=alt.Axis(tickMinStep=1)),
        tooltip=tips(panel="of *", low="from", high="to", queries="queries #"),
    )
    mean = mark("rule", color=PALETTE[1], strokeWidth=2).encode(
        x=alt.X("mean(mean):Q"), tooltip=tips(panel="of *", mean="mean")
    )
    chart = grid([bar, mean], table, column="panel", size=(210, 150), independent=["x", "y"])
    return chart.properties(title=_title(title, "line: mean over the queries"))


def differences(table: pl.DataFrame, *, title: str, level: str) -> Chart:
    """Mean differences and their intervals: columns measure, run, difference, ci_low, ci_high, p_corrected, queries."""
    y = alt.Y("run:N", title=None, sort=order_of(table, "run"))
    x = alt.X("ci_low:Q", title="difference of the means")
    zero = zero_line("x")
    interval = mark("rule", strokeWidth=2).encode(y=y, x=x, x2="ci_high:Q", color=alt.value(PALETTE[0]))
    point = mark("point", size=50, color=PALETTE[0], opacity=1).encode(
        y=y,
        x="difference:Q",
        tooltip=tips(
            run="run *",
            measure="measure *",
            difference="difference",
            ci_low=f"{level} from",
            ci_high="to",
            p_corrected="p",
            queries="queries #",
        ),
    )
    height = max(40, _LINE * table["run"].n_unique())
    chart = grid([zero, interval, point], table, column="measure", size=(220, height), independent=["x"])
    return chart.properties(title=_title(title, f"line: {level} interval"))


def forest_plot(table: pl.DataFrame, *, pooled: str) -> Chart:
    """Effects on data sets and their pooled mean, a panel per group: columns group, data, mean, low, high.

    ``pooled`` is the entry of the column data that is the pooled mean; it is drawn last, as a diamond.
    """
    names = [name for name in sorted(set(table["data"])) if name != pooled]
    y = alt.Y("data:N", title=None, sort=[*names, pooled])
    is_pooled = alt.datum.data == pooled
    shade = alt.condition(is_pooled, alt.value(PALETTE[1]), alt.value(PALETTE[0]))
    x = alt.X("low:Q", title="effect: bounded minus unbounded")
    zero = zero_line("x")
    interval = mark("rule", strokeWidth=2).encode(y=y, x=x, x2="high:Q", color=shade)
    point = mark("point", filled=True, opacity=1).encode(
        y=y,
        x="mean:Q",
        color=shade,
        shape=alt.condition(is_pooled, alt.value("diamond"), alt.value("circle")),
        size=alt.condition(is_pooled, alt.value(160), alt.value(50)),
        tooltip=tips(group="group *", data="data *", mean="effect", low="95 % from", high="to"),
    )
    height = max(40, _LINE * max(table.group_by("group").len()["len"]))
    chart = grid([zero, interval, point], table, column="group", wrap=2, size=(300, height), independent=["x", "y"])
    return chart.properties(title=_title("Effect of bounding on each data set", "line: 95 % interval"))


def differences_by_query(table: pl.DataFrame, *, title: str, measure: str) -> Chart:
    """The difference of each query, the best first: columns run, position, qid, difference, outcome."""
    present = [name for name in _OUTCOMES if name in set(table["outcome"])]
    bar = mark("bar", binSpacing=0).encode(
        x=alt.X("position:Q", bin="binned", title="queries, by their difference"),
        x2="end:Q",
        y=alt.Y("difference:Q", title=f"difference of {measure}"),
        color=alt.Color(
            "outcome:N",
            title="the run is",
            scale=alt.Scale(domain=present, range=[_OUTCOMES[name] for name in present]),
        ),
        tooltip=tips(qid="query *", run="run *", difference="difference"),
    )
    return grid([bar], table, column="run", size=(260, 170), independent=["x"]).properties(title=_title(title))


def bounds_of_queries(table: pl.DataFrame, *, title: str) -> Chart:
    """From the worst to the best value, with a point for the expected one: columns position, worst, expected, best."""
    single = table.height == 1
    axis = None if single else alt.Axis(ticks=False, title="query")
    position = alt.Y("position:O", axis=axis, sort=order_of(table, "position"))
    x = alt.X("worst:Q", title="value of the measure", scale=alt.Scale(zero=False))
    line = mark("rule", table, strokeWidth=6 if single else 2.5, opacity=0.45, color=PALETTE[0])
    point = mark("point", table, color=PALETTE[1], size=90 if single else 30, opacity=1)
    tooltip = tips(position="query #", worst="worst", expected="expected", best="best")
    chart = line.encode(x=x, x2="best:Q", y=position, tooltip=tooltip) + point.encode(
        x="expected:Q", y=position, tooltip=tooltip
    )
    height = max(30, min(12 * table.height, 420))
    subtitle = "line: from the worst to the best value; point: expected value of a random ranking"
    return chart.properties(width=360, height=height, title=_title(title, subtitle))


def distribution_of_scores(table: pl.DataFrame, marks: pl.DataFrame, *, title: str, subtitle: str) -> Chart:
    """Probabilities by score: columns low, high, probability. ``marks`` are vertical lines: columns score, mark."""
    bar = mark("bar", table, color=PALETTE[0], opacity=0.85).encode(
        x=alt.X("low:Q", bin="binned", title="score of a random ranking", scale=alt.Scale(zero=False)),
        x2="high:Q",
        y=alt.Y("probability:Q", title="probability"),
        tooltip=tips(low="from", high="to", probability="probability"),
    )
    names = color(marks, "mark", None).scale(
        domain=order_of(marks, "mark"), range=[PALETTE[1], PALETTE[2]][: marks.height]
    )
    line = mark("rule", marks, strokeWidth=2).encode(
        x="score:Q", color=names, tooltip=tips(mark="line *", score="score")
    )
    return (bar + line).properties(width=360, height=200, title=_title(title, subtitle))


def list_contents(sizes: pl.DataFrame, labels: pl.DataFrame, *, title: str) -> Chart:
    """Queries by their number of items, and items by label: columns low, high, queries; columns label, items."""
    size = (
        mark("bar", sizes, color=PALETTE[0], opacity=0.85)
        .encode(
            x=alt.X("low:Q", bin="binned", title="items of the query", axis=alt.Axis(tickMinStep=1)),
            x2="high:Q",
            y=alt.Y("queries:Q", title="queries", axis=alt.Axis(tickMinStep=1)),
            tooltip=tips(low="from", high="below", queries="queries #"),
        )
        .properties(width=240, height=170)
    )
    label = (
        mark("bar", labels, color=PALETTE[2], opacity=0.85)
        .encode(
            x=alt.X("label:N", title="label", sort=order_of(labels, "label"), axis=alt.Axis(labelAngle=0)),
            y=alt.Y("items:Q", title="items", axis=alt.Axis(tickMinStep=1)),
            tooltip=tips(label="label *", items="items #"),
        )
        .properties(width=max(80, min(26 * labels.height, 320)), height=170)
    )
    return alt.hconcat(size, label, spacing=30, title=_title(title))


def named_histograms(histograms: Mapping[str, Sequence[tuple[str, int]]]) -> Chart:
    """Bars of counts by label or range, a panel for each title: items by label, and lists by anything else."""
    charts = []
    for title, counts in histograms.items():
        table = pl.DataFrame(counts, schema={"range": pl.String, "lists": pl.Int64}, orient="row")
        what = "items" if title == "label" else "lists"
        chart = mark("bar", table, color=PALETTE[0]).encode(
            x=alt.X("range:N", sort=order_of(table, "range"), title=title),
            y=alt.Y("lists:Q", title=what),
            tooltip=tips(range=f"{title} *", lists=f"{what} #"),
        )
        charts += [chart.properties(width=320, height=220)] if counts else []
    return alt.hconcat(*charts)


def training_history(table: pl.DataFrame, kept_epoch: int | None, *, title: str) -> Chart:
    """Loss and measures by epoch, a panel each: columns quantity, epoch, value; a line marks the epoch that is kept."""
    x = alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, tickCount=5), scale=alt.Scale(zero=False))
    line = mark("line", color=PALETTE[0], point=alt.OverlayMarkDef(size=14, color=PALETTE[0])).encode(
        x=x,
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
        tooltip=tips(quantity="quantity *", epoch="epoch #", value="value"),
    )
    layers = [line]
    if kept_epoch is not None:
        kept = alt.Chart(alt.Data(values=[{"epoch": kept_epoch}]))
        layers.append(kept.mark_rule(color=PALETTE[1], strokeDash=[4, 3], strokeWidth=1.5).encode(x=x))
    chart = grid(layers, table, column="quantity", size=(230, 160), independent=["y"])
    subtitle = f"dashed: epoch {kept_epoch}, which is kept" if kept_epoch is not None else ""
    return chart.properties(title=_title(title, subtitle))


def _title(title: str, subtitle: str = "") -> alt.Title:
    """A title with some distance to the headers of the panels."""
    return alt.Title(title, offset=12, **({"subtitle": subtitle} if subtitle else {}))
