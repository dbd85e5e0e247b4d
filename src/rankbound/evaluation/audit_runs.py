"""Checks of runs against a test set: ids, repeated and unjudged documents, ties, and orders that are no ranking."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.frames import id_text
from rankbound.data.judged import from_frames
from rankbound.difficulty.pooled import pooled_gain
from rankbound.difficulty.tie_ranges import tie_ranges
from rankbound.difficulty.unknown import label_ranges, range_of_mean
from rankbound.display import percent, plural
from rankbound.errors import MeasureError
from rankbound.evaluation.audit_judgments import FAULT, NOTE, WARNING, Finding, drop_repeated, sample_queries
from rankbound.evaluation.lists import evaluate_lists
from rankbound.measures import Measure, rank
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    import polars as pl

    from rankbound.evaluation.result import Evaluation

FEWEST_DOCUMENTS = 5  # of a query whose order can be called suspicious
JUDGED_TOP = 0.8  # Judged@k below this hides much


class AuditedRun:
    """A run without repeated documents, evaluated on the queries that are judged; None where there is none."""

    def __init__(self, name: str, frame: pl.DataFrame, judgments: pl.DataFrame, measures: dict[str, Measure]) -> None:
        self.name, self.given, self.judgments, self.measures = name, frame, judgments, measures
        self.lead = next(iter(measures.values()))
        self.frame = drop_repeated(frame)
        self.evaluation: Evaluation | None = None
        self.shared = self.frame.filter(self.frame["qid"].is_in(judgments["qid"].unique().implode()))
        if len(self.shared):
            self.lists = from_frames(judgments, self.shared)
            self.evaluation = evaluate_lists(self.lists, measures, Protocol(), bounds=True)

    @cached_property
    def ties(self) -> dict[str, dict[str, Any]]:
        """Smallest and largest mean over the orders of ties, and in how many queries they differ, by plain measure."""
        assert self.evaluation is not None
        ranked, found = rank(self.lists), {}
        for name, measure in self.measures.items():
            if measure.bounding != "none":
                continue
            low, high = tie_ranges(measure, ranked)
            counted = np.isfinite(self.evaluation.values[name])
            ends = [float(end[counted].mean()) for end in (low, high)] if counted.any() else [None, None]
            changed = int((high - low > 1e-12)[counted].sum())
            found[name] = {"lowest": ends[0], "highest": ends[1], "queries": changed}
        return found

    @cached_property
    def label_ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest mean over all labels of unjudged documents, for the measures that have such a range."""
        ranges = {}
        for name, measure in self.measures.items():
            with contextlib.suppress(MeasureError):
                ends = range_of_mean(label_ranges(self.lists, {name: measure})[name])
                if np.isfinite(ends).all():
                    ranges[name] = ends
        return ranges

    def summary(self) -> dict[str, Any]:
        """Means, with the range over ties, and how far the run is judged."""
        if self.evaluation is None:
            nothing: dict[str, Any] = {"mean": {}, "ties": {}, "unjudged": {}, "judged_at_cutoff": None, "cutoff": None}
            return {"run": self.name, "queries": 0, **nothing}
        coverage = self.evaluation.coverage
        judged = {"judged_at_cutoff": coverage.judged_at_cutoff, "cutoff": coverage.cutoff}
        hidden = {name: {"lowest": low, "highest": high} for name, (low, high) in self.label_ranges.items()}
        about = {"run": self.name, "queries": self.evaluation.queries, "mean": self.evaluation.mean()}
        return {**about, "ties": self.ties, "unjudged": hidden, **judged}

    def findings(self) -> Iterator[Finding]:
        """All checks of the run."""
        yield from self._check_ids()
        yield from self._check_repeated_documents()
        if self.evaluation is None:
            return
        yield from self._check_judged()
        yield from self._check_ties()
        yield from self._check_values()
        yield from self._check_order()
        yield from self._check_random()

    def _finding(self, severity: str, topic: str, text: str, number: float) -> Finding:
        return Finding(severity, topic, f"{self.name}: {text}", float(number), self.name)

    def _check_ids(self) -> Iterator[Finding]:
        import polars as pl

        queries, known = self.frame["qid"].unique(), self.judgments["qid"].unique()
        shared = int(queries.is_in(known.implode()).sum())
        if shared < len(queries) or shared < len(known):
            severity = FAULT if shared == 0 else WARNING if shared < len(known) else NOTE
            text = f"{shared:,} of {plural(len(queries), 'query')} are judged, of {len(known):,} that are judged."
            yield self._finding(severity, "unknown queries", text, shared)
        if shared:
            judged = self.judgments["docid"].unique()
            inside = self.frame.filter(pl.col("qid").is_in(known.implode()))
            found = int(inside["docid"].is_in(judged.implode()).sum())
            if found == 0 or (self.evaluation is not None and self.evaluation.coverage.has_no_common_document):
                text = (
                    f"none of the {len(inside):,} documents is judged for its query (the first is "
                    f"{inside['docid'][0]!r}, the first judged one {self.judgments['docid'][0]!r}): do the ids match?"
                )
                yield self._finding(FAULT, "unknown documents", text, len(inside))

    def _check_repeated_documents(self) -> Iterator[Finding]:
        repeated = len(self.given) - len(self.frame)
        if repeated == 0:
            return
        value = naive_value(self.given, self.judgments, self.lead.cutoff)
        text = f"{plural(repeated, 'document')} are returned more than once"
        if value > 1:
            text += f"; counted each time, they give a query an nDCG of {value:.4f}, above 1"
        yield self._finding(FAULT if value > 1 else WARNING, "repeated documents", f"{text}.", repeated)

    def _check_judged(self) -> Iterator[Finding]:
        assert self.evaluation is not None
        coverage = self.evaluation.coverage
        judged = coverage.judged_at_cutoff
        if coverage.has_no_common_document or not judged < 1:
            return
        text = (
            f"{percent(1 - judged, 1)} of the first {coverage.cutoff} documents are not judged "
            f"(Judged@{coverage.cutoff} {judged:.4f}): they count as not relevant"
        )
        hidden = self.label_ranges
        if hidden:
            name, (low, high) = next(iter(hidden.items()))
            text += f"; whatever they are, {name} is between {low:.4f} and {high:.4f}"
        text += "."
        yield self._finding(WARNING if judged < JUDGED_TOP else NOTE, "unjudged documents", text, 1 - judged)

    def _check_ties(self) -> Iterator[Finding]:
        assert self.evaluation is not None
        name = next((name for name, measure in self.measures.items() if measure.bounding == "none"), None)
        if name is None:
            return
        ties = self.ties[name]
        if not ties["queries"]:
            return
        width = ties["highest"] - ties["lowest"]
        text = (
            f"ties change {name} in {ties['queries']:,} of {plural(self.evaluation.queries, 'query')}: their order "
            f"makes it anything from {ties['lowest']:.4f} to {ties['highest']:.4f}, {self.evaluation.mean()[name]:.4f} "
            "in the mean over all orders."
        )
        yield self._finding(FAULT if width > 0.5 else WARNING if width > 0.01 else NOTE, "ties", text, width)

    def _check_values(self) -> Iterator[Finding]:
        """Values beyond what any ranking can have, which only a measure of your own can produce."""
        assert self.evaluation is not None
        for name, bounds in self.evaluation.bounds.items():
            top = np.maximum(bounds.best, bounds.worst)
            beyond = int((self.evaluation.complete[name] > top + 1e-9 * np.maximum(1, np.abs(top))).sum())
            if beyond:
                largest = float(self.evaluation.complete[name].max())
                text = (
                    f"{name} exceeds the best value of any ranking in {plural(beyond, 'query')} (up to {largest:.4f})."
                )
                yield self._finding(FAULT, "values above the best", text, largest)

    def _check_order(self) -> Iterator[Finding]:
        """Rankings that follow document ids or the rows of the judgments, or rise down the file."""
        sample = sample_queries(self.frame)
        if sample is not self.frame and not any(self._suspicious_orders(sample, 0.3)):
            return
        yield from self._suspicious_orders(self.frame, 0.5)

    def _suspicious_orders(self, frame: pl.DataFrame, least: float) -> Iterator[Finding]:
        """Orders that more than this fraction of the queries follow."""
        import polars as pl

        rows = frame.with_row_index("row").with_columns(id=id_text(frame["docid"]).rank("dense"))
        judged = self.judgments.select("qid", "docid").with_row_index("place")
        if len(frame) < len(self.frame):
            judged = judged.filter(judged["qid"].is_in(frame["qid"].unique().implode()))
        rows = rows.join(judged, on=["qid", "docid"], how="left")
        correlations = rows.group_by("qid").agg(
            pl.len().alias("count"),
            pl.corr("score", "id", method="spearman").alias("id"),
            pl.corr("score", "row", method="spearman").alias("row"),
            pl.corr("score", "place", method="spearman").alias("place"),
            pl.col("place").count().alias("placed"),
        )
        long = correlations.filter(pl.col("count") >= FEWEST_DOCUMENTS)
        if not len(long):
            return
        by_id = int((long["id"].fill_nan(None).abs() > 0.999).sum())
        if by_id > least * len(long):
            text = f"the ranking follows the document ids in {by_id:,} of {plural(len(long), 'query')}."
            yield self._finding(FAULT, "scores follow document ids", text, by_id)
        placed = long.filter(pl.col("placed") >= FEWEST_DOCUMENTS)
        by_place = int((placed["place"].fill_nan(None).abs() > 0.999).sum())
        if by_place > least * len(placed):
            text = f"the ranking follows the rows of the judgments in {by_place:,} of {plural(len(placed), 'query')}."
            yield self._finding(WARNING, "scores follow the judgments", text, by_place)
        rising = int((long["row"].fill_nan(None) > 0.999).sum())
        if rising > (least + 0.4) * len(long):
            text = f"scores rise from row to row in {rising:,} of {plural(len(long), 'query')}: are they distances?"
            yield self._finding(WARNING, "scores rise", text, rising)

    def _check_random(self) -> Iterator[Finding]:
        assert self.evaluation is not None
        for name, bounds in self.evaluation.bounds.items():
            counted = np.isfinite(self.evaluation.values[name])
            known = (self.evaluation.complete[name], bounds.expected, bounds.best)
            gain = pooled_gain(*(array[counted] for array in known))
            if gain <= 0:
                text = (
                    f"{name} is not above that of a random ranking of the same documents (chance-corrected {gain:.4f})."
                )
                yield self._finding(WARNING, "not above random", text, gain)
                return


def naive_value(frame: pl.DataFrame, judgments: pl.DataFrame, cutoff: int | None) -> float:
    """The largest nDCG of a query where repeated documents count each time, as in code that does not look for them."""
    import polars as pl

    def dcg(rows: pl.DataFrame, by: str) -> pl.DataFrame:
        gain = pl.col("label").clip(lower_bound=0).cast(pl.Float64).fill_null(0.0)
        rank = pl.int_range(1, pl.len() + 1)
        kept = rank <= (2**60 if cutoff is None else cutoff)
        ordered = rows.sort("qid", by, descending=[False, True], maintain_order=True)
        return ordered.group_by("qid").agg((gain * kept / (rank + 1).log(2)).sum().alias("dcg"))

    ranked = dcg(frame.join(judgments.select("qid", "docid", "label"), on=["qid", "docid"], how="left"), "score")
    both = ranked.join(dcg(judgments, "label").rename({"dcg": "best"}), on="qid").filter(pl.col("best") > 0)
    largest = (both["dcg"] / both["best"]).max()
    return 0.0 if largest is None else float(largest)  # type: ignore[arg-type]
