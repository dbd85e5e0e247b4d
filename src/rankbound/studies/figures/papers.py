"""Figures of the papers: scores that are possible, trainings, learned coefficients, and pairs of images."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankbound.report.figures.panels import color, grid, highlight, mark, tips, with_panel
from rankbound.report.figures.theme import DIVERGING, Chart, alt

_LOSS_NAMES = {"nDCG": "nDCG loss", "AP": "AP loss", "U": "U, the loss behind nRBP"}


def _lines(table: pl.DataFrame, by: str, legend: str, *, style: dict[str, Any] | None = None, **encoding: Any) -> Chart:
    """A line for each value of the column ``by``; clicking the legend highlights one."""
    selection, opacity = highlight(by)
    colors = color(table, by, legend)
    return mark("line", **(style or {})).encode(color=colors, opacity=opacity, **encoding).add_params(selection)


def lower_bounds(table: pl.DataFrame) -> Chart:
    """Worst score by the fraction of relevant items: takes `studies.curves.lower_bounds`."""
    line = _lines(
        table,
        "items",
        "items in the query",
        x=alt.X("fraction:Q", title="relevant items (fraction of the query)", axis=alt.Axis(format="%")),
        y=alt.Y("worst:Q", title="worst possible score", scale=alt.Scale(domain=[0, 1])),
        tooltip=tips(measure="measure *", items="items #", fraction="fraction relevant", worst="worst score"),
        style={"point": alt.OverlayMarkDef(size=12)},
    )
    return grid([line], table, column="measure", size=(280, 200))


def expected_losses(table: pl.DataFrame) -> Chart:
    """Expected loss of a random ranking by the number of relevant items: takes `studies.curves.expectation_curves`."""
    line = _lines(
        table,
        "ratio",
        "irrelevant items per relevant one (NSR)",
        x=alt.X("relevant:Q", title="relevant items in the query"),
        y=alt.Y("expected:Q", title="expected loss", scale=alt.Scale(zero=False)),
        tooltip=tips(loss="loss *", ratio="NSR #", relevant="relevant items #", expected="expected loss"),
    )
    return grid([line], _with_loss(table), column="loss", size=(220, 180), independent=["y"])


def bounded_losses(table: pl.DataFrame) -> Chart:
    """Bounded loss against the unbounded one: takes `studies.curves.bounded_losses`."""
    line = _lines(
        table,
        "instance",
        "query (N items, P relevant)",
        x=alt.X("loss:Q", title="unbounded loss", scale=alt.Scale(zero=False)),
        y=alt.Y("bounded:Q", title="bounded loss", scale=alt.Scale(zero=False)),
        tooltip=tips(instance="query *", loss="unbounded loss", bounded="bounded loss"),
    )
    table = _with_loss(table, "base")
    return grid([line], table, row="group", column="base", size=(200, 150), independent=["x", "y"])


def smooth_distributions(table: pl.DataFrame) -> Chart:
    """A distribution and its smooth forms: takes `studies.curves.smooth_distributions`."""
    line = _distribution_lines(
        table,
        "distribution",
        "exact, or smooth with gain a",
        tooltip=tips(distribution="distribution *", score="score", fraction="probability of at most this"),
        strokeDash=alt.condition(alt.datum.distribution == "exact", alt.value([1, 0]), alt.value([5, 2])),
    )
    return grid([line], table, row="instance", column="measure", size=(200, 150), independent=["x"])


def distributions(table: pl.DataFrame) -> Chart:
    """Smooth distributions of several instances: takes `studies.curves.distribution_curves`."""
    line = _distribution_lines(
        table,
        "instance",
        "query (N items, P relevant)",
        tooltip=tips(instance="query *", score="score", fraction="probability of at most this"),
    )
    return grid([line], table, row="group", column="measure", size=(200, 150), independent=["x"])


def _distribution_lines(table: pl.DataFrame, by: str, legend: str, **more: Any) -> Chart:
    return _lines(
        table,
        by,
        legend,
        x=alt.X("score:Q", title="score of a random ranking", scale=alt.Scale(zero=False)),
        y=alt.Y("fraction:Q", title="probability of at most this", scale=alt.Scale(domain=[0, 1])),
        **more,
    )


def _with_loss(table: pl.DataFrame, name: str = "loss") -> pl.DataFrame:
    return table.with_columns(pl.col("measure").replace(_LOSS_NAMES).alias(name))


# ---- trainings -------------------------------------------------------------------------------------------------------


def training_paths(table: pl.DataFrame) -> Chart:
    """Quantities by epoch, with a band from the minimum to the maximum over folds and seeds.

    Takes `studies.learning.training_paths`.
    """
    return _paths(table, title=None, row="quantity")


def approximation_error(table: pl.DataFrame) -> Chart:
    """Mean distance between the smooth and the exact measure by epoch: takes `studies.learning.training_paths`."""
    row = "quantity" if table["quantity"].n_unique() > 1 else None
    return _paths(table, title="approximation error", row=row)


def learned_coefficients(table: pl.DataFrame) -> Chart:
    """Learned coefficients as images: takes `studies.learning.coefficient_images`."""
    row, column = (int(table[name].max() or 0) + 1 for name in ("row", "column"))  # type: ignore[arg-type]
    side = 190
    pixel = mark("rect").encode(
        x=alt.X("column:O", axis=None, title="column of the image"),
        y=alt.Y("row:O", axis=None, title="row of the image"),
        color=alt.Color("weight:Q", title="coefficient", scale=alt.Scale(scheme=DIVERGING, domain=[-1, 1])),
        tooltip=tips(model="model *", row="row #", column="column #", weight="coefficient"),
    )
    return grid([pixel], table, column="model", wrap=4, size=(side, round(side * row / column)))


def example_pairs(table: pl.DataFrame) -> Chart:
    """Pairs of images as a model orders them: takes `studies.image_pairs.pictures_of`."""
    table = table.with_columns(
        pl.col("label").round(0).cast(pl.Int64, strict=False).cast(pl.String).alias("label_text"),
        pl.format("score {}", pl.col("score").round_sig_figs(3)).alias("score_text"),
    )
    base = alt.Chart().encode(
        x=alt.X("side:N", axis=None, sort=["left", "right"]), tooltip=tips(kind="pair *", label="label", score="score")
    )
    picture = base.mark_image(width=62, height=62, baseline="top", aria=False).encode(url="image:N", y=alt.value(0))
    label = base.mark_text(fontSize=12).encode(text="label_text:N", y=alt.value(72))
    score = base.mark_text(fontSize=10, opacity=0.75).encode(text="score_text:N", y=alt.value(86))
    return grid([picture, label, score], table, row="kind", column="pair", size=(140, 94))


def _paths(table: pl.DataFrame, title: str | None, row: str | None) -> Chart:
    selection, opacity = highlight("system")
    table = with_panel(table)
    x = alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, tickCount=5))
    systems = color(table, "system", "system")
    band = mark("area", opacity=0.15).encode(
        x=x, y=alt.Y("low:Q", title=title, scale=alt.Scale(zero=False)), y2="high:Q", color=systems
    )
    line = (
        mark("line", strokeWidth=1.6)
        .encode(
            x=x,
            y=alt.Y("mean:Q", title=title, scale=alt.Scale(zero=False)),
            color=systems,
            opacity=opacity,
            tooltip=tips(
                system="system *", quantity="quantity *", epoch="epoch #", mean="mean", low="minimum", high="maximum"
            ),
        )
        .add_params(selection)
    )
    return grid([band, line], table, row=row, column="panel", size=(230, 150), independent=["y", "x"])
