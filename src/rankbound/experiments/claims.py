"""Tests of a paper's findings.

Each claim says which rows of the results should lie above or below the setting that they are tested against; the
confidence intervals of these differences show whether they do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

    from rankbound.experiments.spec import Claim

__all__ = ["Verdict", "judge_claims"]


class Verdict(NamedTuple):
    """A claim, and the numbers of rows whose 95 % interval of the difference agrees, disagrees, or contains 0."""

    claim: str
    agree: int
    disagree: int
    unclear: int

    @property
    def word(self) -> str:
        """One of: confirmed, partly confirmed, refuted, unclear, not tested."""
        if not self.agree + self.disagree + self.unclear:
            return "not tested"
        if not self.agree:
            return "refuted" if self.disagree else "unclear"
        return "confirmed" if not self.disagree + self.unclear else "partly confirmed"

    @property
    def sentence(self) -> str:
        """The verdict and its counts, as a sentence."""
        rows = self.agree + self.disagree + self.unclear
        if not rows:
            return f"{self.claim}: not tested, because none of its rows is finished."
        counts = f"{self.agree} of {rows} rows agree, {self.disagree} disagree, {self.unclear} show no clear difference"
        return f"{self.claim}: {self.word} ({counts})."


def judge_claims(claims: Iterable[Claim], results: pl.DataFrame) -> list[Verdict]:
    """Test claims on a results table (`rankbound.experiments.results.results_table`)."""
    import polars as pl

    verdicts = []
    for claim in claims:
        rows = results
        for key, wanted in claim.where.items():
            values = [str(value) for value in wanted]
            rows = rows.filter(pl.col(key).is_in(values)) if key in rows.columns else rows.head(0)
        low, high = (
            rows[name].drop_nulls().to_numpy() if name in rows.columns else pl.Series([], dtype=pl.Float64).to_numpy()
            for name in ("versus_low", "versus_high")
        )
        above, below = int((low > 0).sum()), int((high < 0).sum())
        agree, disagree = (above, below) if claim.expect == "above" else (below, above)
        verdicts.append(Verdict(claim.claim, agree, disagree, len(low) - agree - disagree))
    return verdicts
