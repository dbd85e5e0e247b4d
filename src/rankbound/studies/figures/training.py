"""Figures of training: quantities over epochs, learned coefficients, pairs of images."""

from __future__ import annotations

import polars as pl

from rankbound.report.figures.panels import color, grid, highlight, mark, tips, with_panel
from rankbound.report.figures.theme import DIVERGING, Chart, alt


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
