"""AP: average precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import MeasureError
from rankbound.measures.combinatorics import log_choose, log_factorials
from rankbound.measures.definition import REL, VARIANT, BoundsTuple, Parameter, Value
from rankbound.measures.label_counts import ratio
from rankbound.measures.precision_sum import PrecisionSum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.measures.label_counts import LabelCounts
    from rankbound.measures.measure import Measure
    from rankbound.measures.ranked import Ranked

MEAN = Parameter("arithmetic", "'arithmetic' or 'geometric'", ("arithmetic", "geometric"))


class AveragePrecision(PrecisionSum):
    """AP@k = (1/D) sum over the relevant documents at ranks r <= k of the precision at r.

    ``div`` names the divisor D: all relevant documents (``'R'``, as in trec_eval), min(k, relevant) (``'min'``), k
    (``'k'``), or the relevant documents among the first k (``'retrieved'``). ``mean='geometric'`` averages over queries
    by the geometric mean of max(AP, 0.00001), trec_eval's gm_map.

    Recommender libraries usually mean ``div='min'`` by MAP@k, which has the name ``MAP_min@k`` as well: a list whose
    first k items are all relevant then has the value 1, however many relevant items there are.
    """

    name = "AP"
    summary = "average precision; div names the divisor: all relevant, min(k, relevant), k, or relevant retrieved"
    formula = "(1/D) sum over relevant documents at r <= k of (relevant documents down to r) / r"
    citation = "Buckley & Voorhees, Evaluating evaluation measure stability, SIGIR 2000"
    parameters = {
        "rel": REL,
        "div": Parameter("R", "'R', 'min', 'k' or 'retrieved'", ("R", "min", "k", "retrieved")),
        "variant": VARIANT,
        "mean": MEAN,
    }
    aliases = {"map": {}, "averageprecision": {}, "gm_map": {"mean": "geometric"}, "map_min": {"div": "min"}}

    def check_settings(self, cutoff: int | None, settings: Mapping[str, Value], text: str) -> None:
        """Some divisors need a cutoff; the published bounds are for one divisor."""
        div = settings.get("div")
        if cutoff is None and div in ("k", "min"):
            raise MeasureError(f"AP(div={div!r}) needs a cutoff, as in AP(div={div!r})@10; got {text!r}")
        if settings.get("variant") == "published" and div != "k":
            raise MeasureError(f"AP(variant='published') is defined for div='k' only, got {text!r}")

    def aggregate(self, measure: Measure) -> str:
        """Arithmetic or geometric mean."""
        return "geometric" if measure["mean"] == "geometric" else "mean"

    def divisor(
        self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The divisors that the query alone decides."""
        if measure["div"] == "k":
            return np.full(len(counts), float(measure.cutoff or 0))
        relevant = self.relevant(measure, counts, levels)
        return (np.minimum(relevant, measure.cutoff or 0) if measure["div"] == "min" else relevant).astype(float)

    def range_form(self, measure: Measure) -> str:
        """None for div='retrieved', whose divisor depends on the ranks of hits."""
        return {"k": "rises", "retrieved": ""}.get(str(measure["div"]), "hits")

    def keeps_cutoff(self, measure: Measure, n: int) -> bool:
        """Where the divisor has it."""
        return measure["div"] in ("min", "k")

    def has_loss(self, measure: Measure) -> bool:
        """Unless the divisor depends on the ranking."""
        return measure["div"] != "retrieved"

    # ---- div='retrieved': the divisor is a part of the ranking -------------------------------------------------------

    def values(self, measure: Measure, ranked: Ranked) -> NDArray[np.float64]:
        """The sum of precisions over the divisor; in a tie the mean over its orders."""
        if measure["div"] != "retrieved":
            return super().values(measure, ranked)
        hits, cut = ranked.hits(measure.rel), ranked.cut(measure.cutoff)
        value = ratio(self.precision_sums(measure, ranked), ranked.sum_of_hits(hits, hits.probability, cut))
        if ranked.tied is not None:  # where a tied block lies across the cutoff, the divisor depends on its order
            tied = ranked.tied
            above = tied.start - ranked.offsets[tied.query]
            across = (above < cut[tied.query]) & (above + tied.size > cut[tied.query])
            query = tied.query[across]
            inside = tied.sum(ranked.labels >= measure.rel)[across].astype(np.int64)
            limit = np.full(len(ranked), np.iinfo(np.int64).max)
            limit[query] = above[across]
            fixed = (hits.rank <= cut[hits.query]) & (hits.rank <= limit[hits.query])
            terms = (hits.probability * hits.nth / hits.rank)[fixed]
            before = ranked.sum(hits.query[fixed], terms)[query]
            count = np.rint(ranked.sum(hits.query[fixed], hits.probability[fixed])[query]).astype(np.int64)
            value[query] = _mean_over_retrieved(
                tied.size[across], inside, cut[query] - above[across], above[across], count, before
            )
        return value

    def bounds_of_levels(self, measure: Measure, counts: LabelCounts, levels: NDArray[np.float64]) -> BoundsTuple:
        """Those of the sum of precisions over the divisor."""
        if measure["div"] != "retrieved":
            return super().bounds_of_levels(measure, counts, levels)
        worst, _, _ = self.sum_bounds(measure, counts, levels)
        n, p, c = counts.sizes, self.relevant(measure, counts, levels), counts.cut(measure.cutoff)
        none = np.zeros_like(n)
        expected = _mean_over_retrieved(n, p, c, none, none, np.zeros(len(n)))
        return ratio(worst, np.maximum(c - (n - p), 0)), expected, (np.minimum(c, p) > 0).astype(float)

    def case_settings(self, measure: Measure, n: int, ranks: int) -> tuple[tuple[str, Value], ...]:
        """Where everything is retrieved, the divisor is the number of relevant documents."""
        return () if measure["div"] == "retrieved" and ranks == n else super().case_settings(measure, n, ranks)

    def scale_and_shift(self, case: Any, so_far: Any) -> tuple[Any, Any]:
        """One over the divisor, which for 'retrieved' is the number of relevant documents that were seen."""
        if case.measure["div"] != "retrieved":
            return super().scale_and_shift(case, so_far)
        hits = np.asarray(so_far[0] if case.relevant else 0.0)
        return np.divide(1.0, hits, out=np.zeros(hits.shape), where=hits > 0), 0.0

    def scale_varies(self, measure: Measure) -> bool:
        """With the relevant documents that were seen."""
        return measure["div"] == "retrieved"

    def total_range(self, case: Any) -> tuple[float, float, float]:
        """Up to one for each relevant document."""
        if case.measure["div"] != "retrieved":
            return super().total_range(case)
        return 0.0, float(min(case.relevant, case.ranks)), 0.0


def _mean_over_retrieved(
    size: NDArray[np.int64],
    relevant: NDArray[np.int64],
    window: NDArray[np.int64],
    above: NDArray[np.int64],
    hits: NDArray[np.int64],
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mean over all orders of a block of (sum of precisions) / (relevant retrieved), where only a window of it is seen.

    The block has ``size`` documents, ``relevant`` of them relevant; the first ``window`` of them are seen, after
    ``above`` documents with ``hits`` relevant ones and precision sum ``total``. Given that m relevant documents fall
    into the window (hypergeometric), they stand at random positions there.
    """
    value = np.zeros(len(size))
    table = log_factorials(int(size.max(initial=0)))
    inverse = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, int((above + window).max(initial=0)) + 1))))
    harmonic = inverse[above + window] - inverse[above]  # sum of 1 / rank over the window
    for m in range(int(np.minimum(relevant, window).max(initial=0)) + 1):
        possible = (m <= relevant) & (m <= window) & (window - m <= size - relevant)
        s, r, w, a, f, h = (x[possible] for x in (size, relevant, window, above, hits, harmonic))
        probability = np.exp(log_choose(table, r, m) + log_choose(table, s - r, w - m) - log_choose(table, s, w))
        # precision sum in the window: sum over t of m/w * (f + 1 + (t-1)(m-1)/(w-1)) / (a + t)
        step = (m - 1) / np.maximum(w - 1, 1)
        inside = m / np.maximum(w, 1) * ((f + 1 - step * (a + 1)) * h + step * w)
        value[possible] += probability * ratio(total[possible] + inside, f + m)
    return value
