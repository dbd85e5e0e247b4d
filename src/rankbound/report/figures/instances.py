"""Figures of single queries: the spread of scores, differences from a baseline, and their relation to activity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from rankbound.report.figures.panels import diagonal, grid, mark, tips, with_panel, zero_line
from rankbound.report.figures.theme import BETTER, NEUTRAL, WORSE, Chart, alt

if TYPE_CHECKING:
    from rankbound.evaluation.score_tables import Contrast

_PANEL = (170, 130)


def score_distributions(curves: pl.DataFrame, intervals: pl.DataFrame, contrast: Contrast) -> Chart:
    """Fraction of queries with at most each score; shaded where the system has fewer low scores than the baseline.

    Takes both tables of `contrasts.score_distributions`.
    """
    shown = ["system", f"baseline: {contrast.baseline}"]
    lines = pl.concat(
        [
            curves.drop("baseline").with_columns(pl.lit(shown[0]).alias("line")),
            curves.drop("fraction").rename({"baseline": "fraction"}).with_columns(pl.lit(shown[1]).alias("line")),
        ],
        how="diagonal",
    )
    table = with_panel(pl.concat([lines, intervals], how="diagonal"))
    shade = (
        alt.Chart()
        .transform_filter("isValid(datum.low)")
        .mark_rect(color="currentColor", opacity=0.13)
        .encode(x=alt.X("low:Q"), x2="high:Q", tooltip=tips(system="better here *", low="from", high="to"))
    )
    line = (
        alt.Chart()
        .transform_filter("isValid(datum.line)")
        .mark_line(interpolate="step-after", strokeWidth=1.6)
        .encode(
            x=alt.X("score:Q", title=f"{contrast.measure} of a query", scale=alt.Scale(zero=False)),
            y=alt.Y("fraction:Q", title="fraction of queries", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("line:N", title=None, scale=alt.Scale(domain=shown, range=[BETTER, WORSE]), sort=shown),
            strokeDash=alt.condition(f"datum.line === {shown[1]!r}", alt.value([4, 2]), alt.value([1, 0])),
            tooltip=tips(system="system *", line="line *", score="score", fraction="fraction at most"),
        )
    )
    return grid([shade, line], table, row="system", column="panel", size=_PANEL, independent=["x"])


def instance_scatter(table: pl.DataFrame, contrast: Contrast) -> Chart:
    """Score of each system against the baseline's on the same query: takes `contrasts.instance_scores`."""
    sign = pl.when(pl.col("difference") > 0).then(pl.lit("higher")).when(pl.col("difference") < 0).then(pl.lit("lower"))
    table = with_panel(table.with_columns(sign.otherwise(pl.lit("equal")).alias("outcome")))
    ends = table.select(pl.min_horizontal("baseline", "score").min(), pl.max_horizontal("score", "baseline").max())
    outcomes = ["higher", "equal", "lower"]
    point = mark("point", size=14, opacity=0.55).encode(
        x=alt.X("baseline:Q", title=f"{contrast.measure}, {contrast.baseline}", scale=alt.Scale(zero=False)),
        y=alt.Y("score:Q", title=f"{contrast.measure}, system", scale=alt.Scale(zero=False)),
        color=alt.Color(
            "outcome:N",
            title="compared with the baseline",
            sort=outcomes,
            scale=alt.Scale(domain=outcomes, range=[BETTER, NEUTRAL, WORSE]),
        ),
        tooltip=tips(
            qid="query *",
            system="system *",
            score="system",
            baseline="baseline",
            difference="difference",
            items="items #",
            relevant="relevant #",
        ),
    )
    return grid([diagonal(ends.row(0)), point], table, row="system", column="panel", size=(160, 160))


def gain_by_activity(points: pl.DataFrame, curves: pl.DataFrame, contrast: Contrast) -> Chart:
    """Difference from the baseline by the number of relevant items, with a smooth fit and its 95 % band.

    Takes `contrasts.instance_scores` and `contrasts.activity_curves`.
    """
    points = points.filter(pl.col("relevant") > 0).with_columns(pl.col("relevant").cast(pl.Float64))
    table = with_panel(pl.concat([points, curves], how="diagonal"))
    x = alt.X("relevant:Q", title="relevant items (log scale)", scale=alt.Scale(type="log", nice=False), axis=_LOG)
    point = (
        alt.Chart()
        .transform_filter("isValid(datum.difference)")
        .mark_point(size=10, color=NEUTRAL, opacity=0.4)
        .encode(
            x=x,
            y=alt.Y("difference:Q", title=[f"difference in {contrast.measure}", f"from {contrast.baseline}"]),
            tooltip=tips(
                qid="query *",
                system="system *",
                difference="difference",
                score="score",
                items="items #",
                relevant="relevant #",
            ),
        )
    )
    zero = zero_line("y")
    curve = alt.Chart().transform_filter("isValid(datum.gain)")
    band = curve.mark_area(color=BETTER, opacity=0.3).encode(x=x, y="low:Q", y2="high:Q")
    line = curve.mark_line(color=BETTER).encode(
        x=x, y="gain:Q", tooltip=tips(relevant="relevant items", gain="smooth difference", low="95 % from", high="to")
    )
    return grid([point, zero, band, line], table, row="system", column="panel", size=_PANEL, independent=["x"])


_LOG = alt.Axis(format="~s", values=[n * 10**power for power in range(6) for n in (1, 3)])
