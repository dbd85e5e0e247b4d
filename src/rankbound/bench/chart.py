"""The chart: ratios with the bars asked for, and the growth curves."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankbound.bench.running import Outcome
from rankbound.report.figures.panels import color, tips
from rankbound.report.figures.theme import BETTER, NEUTRAL, WORSE, alt

__all__ = ["bench_chart"]

_LINE = 15  # points of height per row
_VERDICTS = {True: "less than asked for, or worse than a peer", False: "as asked for, or better than a peer"}
_UNITS = {"seconds": "time (s)", "megabytes": "memory (MB)"}


def bench_chart(outcome: Outcome) -> Any:
    """One picture of everything that was found."""
    panels = [_ratios(part, outcome) for part, rows in outcome.rows.items() if rows]
    charts = [alt.vconcat(*panels, spacing=12).resolve_scale(x="shared")] if panels else []
    if any(outcome.growth.values()):
        charts.append(_curves(outcome))
    return alt.vconcat(*charts, spacing=40).resolve_scale(color="independent")


def _ratios(part: str, outcome: Outcome) -> Any:
    """A line for each row: how many times better, and a tick where that is asked for."""
    lines = [
        {
            "what": f"{row.name} | {row.peer}",
            "ratio": row.ratio,
            "bar": row.bar,
            "verdict": _VERDICTS[row.missed or row.differs or row.lost],
        }
        for row in outcome.rows[part]
    ]
    table = pl.DataFrame(lines, schema_overrides={"bar": pl.Float64})
    log, title = alt.Scale(type="log"), "times better than the peer (log scale); gray: asked for"
    y = alt.Y("what:N", title=None, sort=table["what"].to_list(), axis=alt.Axis(labelLimit=560))
    verdict = alt.Color(
        "verdict:N", title=None, scale=alt.Scale(domain=list(_VERDICTS.values()), range=[WORSE, BETTER])
    )
    even = alt.Chart(pl.DataFrame({"even": [1.0]})).mark_rule(strokeDash=[3, 3], opacity=0.6)
    asked = alt.Chart(table.drop_nulls("bar")).mark_tick(color=NEUTRAL, thickness=3, size=_LINE - 3)
    reached = alt.Chart(table).mark_point(size=45, filled=True)
    return alt.layer(
        even.encode(x=alt.X("even:Q", title=title, scale=log)),
        asked.encode(x=alt.X("bar:Q", title=title, scale=log), y=y),
        reached.encode(
            x=alt.X("ratio:Q", title=title, scale=log),
            y=y,
            color=verdict,
            tooltip=tips(what="what *", ratio="times better", bar="asked for"),
        ),
    ).properties(title=part, width=420, height=_LINE * len(table))


def _curves(outcome: Outcome) -> Any:
    """A panel of time and one of memory for each curve."""
    lines = [
        {"curve": one.curve, "over": one.over, "what": what, "way": one.way, "size": size, "amount": amount}
        for found in outcome.growth.values()
        for one in found
        for what in _UNITS
        for size, amount in zip(one.sizes, getattr(one, what) or (), strict=False)
        if amount > 0
    ]
    table = pl.DataFrame(lines)
    colors, log = color(table, "way", "who"), alt.Scale(type="log", nice=False)
    panels = []
    for (curve, over, what), rows in table.group_by("curve", "over", "what", maintain_order=True):
        line = alt.Chart(rows).mark_line(point=alt.OverlayMarkDef(size=20), clip=False)
        line = line.encode(
            x=alt.X("size:Q", title=f"{over} (log scale)", scale=log, axis=alt.Axis(format="~s", tickCount=4)),
            y=alt.Y("amount:Q", title=_UNITS[str(what)], scale=log, axis=alt.Axis(format="~g", tickCount=4)),
            color=colors,
            tooltip=tips(way="who *", size="size #", amount=_UNITS[str(what)]),
        )
        panels.append(line.properties(title=str(curve), width=250, height=150))
    return alt.concat(*panels, columns=3, spacing=30)
