"""Tests of a paper's findings.

Each claim says which rows of the results should lie above or below the setting that they are tested against, or close
to it; the confidence intervals of these differences show whether they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from rankbound.studies.spec import Claim


class Verdict(NamedTuple):
    """A claim, and the numbers of rows whose 95 % interval of the difference agrees, disagrees, or decides nothing."""

    claim: str
    agree: int
    disagree: int
    unclear: int

    @property
    def word(self) -> str:
        """One of: confirmed, partly confirmed, mixed (some rows agree, some disagree), refuted, unclear, not tested."""
        if not self.agree + self.disagree + self.unclear:
            return "not tested"
        if not self.agree:
            return "refuted" if self.disagree else "unclear"
        if self.disagree:
            return "mixed"
        return "partly confirmed" if self.unclear else "confirmed"

    @property
    def sentence(self) -> str:
        """The verdict and its counts, as a sentence."""
        rows = self.agree + self.disagree + self.unclear
        if not rows:
            return f"{self.claim}: not tested, because none of its rows is finished."
        counts = f"{self.agree} of {rows} rows agree, {self.disagree} disagree, {self.unclear} show no clear difference"
        return f"{self.claim}: {self.word} ({counts})."


def judge_claims(claims: Iterable[Claim], results: pl.DataFrame) -> list[Verdict]:
    """Test claims on a results table (`rankbound.studies.results.results_table`)."""
    verdicts = []
    for claim in claims:
        rows = claim_rows(claim, results)
        low, high = (rows[name].to_numpy() for name in ("versus_low", "versus_high"))
        if claim.expect == "similar":
            agree = int(((low > -claim.margin) & (high < claim.margin)).sum())
            disagree = int(((low > claim.margin) | (high < -claim.margin)).sum())
        else:
            above, below = int((low > 0).sum()), int((high < 0).sum())
            agree, disagree = (above, below) if claim.expect == "above" else (below, above)
        verdicts.append(Verdict(claim.claim, agree, disagree, len(low) - agree - disagree))
    return verdicts


def claim_rows(claim: Claim, results: pl.DataFrame) -> pl.DataFrame:
    """The rows of a results table that a claim is about and that were tested against another setting."""
    tested = ("versus_low", "versus_high")
    if not {*tested, *claim.where} <= set(results.columns):
        return pl.DataFrame(schema=dict.fromkeys(tested, pl.Float64))
    rows = results.drop_nulls(tested)
    for key, wanted in claim.where.items():
        rows = rows.filter(pl.col(key).is_in([str(value) for value in wanted]))
    return rows
