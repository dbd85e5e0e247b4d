"""The chart: ratios with their bars, and the growth curves."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from benchmarks.runner import Outcome
from rankbound.report.figures.theme import BETTER, NEUTRAL, PALETTE, WORSE

__all__ = ["bench_chart"]

_ROW_HEIGHT = 15  # points
_VERDICTS = {True: "below the bar, or worse than a peer", False: "at or above the bar, or better than a peer"}
_QUANTITIES = {"seconds": "time (s)", "megabytes": "memory (MB)"}


def bench_chart(outcome: Outcome) -> Any:
    """Return one picture of all findings."""
    panels = [_ratios(part, outcome) for part, rows in outcome.rows.items() if rows]
    charts = [alt.vconcat(*panels, spacing=12).resolve_scale(x="shared")] if panels else []
    if any(outcome.growth.values()):
        charts.append(_curves(outcome))
    return alt.vconcat(*charts, spacing=40).resolve_scale(color="independent")


def _ratios(part: str, outcome: Outcome) -> Any:
    """A point for each row at its ratio, and a tick at its bar."""
    lines = [
        {
            "benchmark": f"{row.name} | {row.peer}",
            "ratio": row.ratio,
            "bar": row.bar,
            "verdict": _VERDICTS[row.missed or row.differs or row.lost],
        }
        for row in outcome.rows[part]
    ]
    table = pl.DataFrame(lines, schema_overrides={"bar": pl.Float64})
    log, title = alt.Scale(type="log"), "peer's time / our time (log scale); gray: the bar"
    y = alt.Y("benchmark:N", title=None, sort=table["benchmark"].to_list(), axis=alt.Axis(labelLimit=560))
    verdict = alt.Color(
        "verdict:N", title=None, scale=alt.Scale(domain=list(_VERDICTS.values()), range=[WORSE, BETTER])
    )
    even = alt.Chart(pl.DataFrame({"even": [1.0]})).mark_rule(strokeDash=[3, 3], opacity=0.6)
    bars = alt.Chart(table.drop_nulls("bar")).mark_tick(color=NEUTRAL, thickness=3, size=_ROW_HEIGHT - 3)
    points = alt.Chart(table).mark_point(size=45, filled=True)
    tooltip = ["benchmark:N", alt.Tooltip("ratio:Q", format=".4~f"), alt.Tooltip("bar:Q", format=".4~f")]
    return alt.layer(
        even.encode(x=alt.X("even:Q", title=title, scale=log)),
        bars.encode(x=alt.X("bar:Q", title=title, scale=log), y=y),
        points.encode(x=alt.X("ratio:Q", title=title, scale=log), y=y, color=verdict, tooltip=tooltip),
    ).properties(title=part, width=420, height=_ROW_HEIGHT * len(table))


def _curves(outcome: Outcome) -> Any:
    """A panel of time and one of memory for each curve."""
    lines = [
        {"curve": line.curve, "over": line.over, "quantity": quantity, "way": line.way, "size": size, "amount": amount}
        for part_lines in outcome.growth.values()
        for line in part_lines
        for quantity in _QUANTITIES
        for size, amount in zip(line.sizes, getattr(line, quantity) or (), strict=False)
        if amount > 0
    ]
    table = pl.DataFrame(lines)
    names = table["way"].unique(maintain_order=True).to_list()
    palette = alt.Scale(domain=names, range=[PALETTE[index % len(PALETTE)] for index in range(len(names))])
    color, log = alt.Color("way:N", title="library", sort=names, scale=palette), alt.Scale(type="log", nice=False)
    panels = []
    for (curve, over, quantity), rows in table.group_by("curve", "over", "quantity", maintain_order=True):
        title = _QUANTITIES[str(quantity)]
        chart = alt.Chart(rows).mark_line(point=alt.OverlayMarkDef(size=20), clip=False)
        chart = chart.encode(
            x=alt.X("size:Q", title=f"{over} (log scale)", scale=log, axis=alt.Axis(format="~s", tickCount=4)),
            y=alt.Y("amount:Q", title=title, scale=log, axis=alt.Axis(format="~g", tickCount=4)),
            color=color,
            tooltip=[
                alt.Tooltip("way:N", title="library"),
                alt.Tooltip("size:Q", format=",d"),
                alt.Tooltip("amount:Q", title=title, format=".4~f"),
            ],
        )
        panels.append(chart.properties(title=str(curve), width=250, height=150))
    return alt.concat(*panels, columns=3, spacing=30)
