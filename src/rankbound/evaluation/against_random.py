"""On how many queries is a system better than a random ranking, and could that be luck?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.difficulty.p_values import PValues
from rankbound.errors import ArgumentError
from rankbound.evaluation import Evaluation, evaluate
from rankbound.evaluation.combined_p_values import fisher, harmonic_mean, higher_criticism
from rankbound.evaluation.inference import Inference
from rankbound.measures import parse_measure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.evaluation.scores import ScoreMatrix

OUTCOMES = ("better", "no evidence", "worse", "no choice")


@dataclass(frozen=True, eq=False)
class AgainstRandom:
    """The queries of a run compared with random rankings of the same candidates by one plain measure.

    ``p_values`` has the p-values of each query, before correction. A query is *better* (*worse*) if the p-value of "no
    better (worse) than random", corrected over all queries with a choice, is below the level of the policy; each of the
    two directions is tested at that level. Otherwise there is *no evidence*, which does not mean that the ranking is
    random. A query has *no choice* if all rankings of its candidates score the same, or if the measure is not defined
    for it; such queries carry no evidence and are left out of every count, correction and combination.

    >>> result = against_random({"q": {"a": 1, "b": 0, "c": 0}}, {"q": {"a": 3, "b": 2, "c": 1}}, "RR")["RR"]
    >>> result
    AgainstRandom(RR: better on 0 of 1 queries, worse on 0; no choice on 0)
    >>> result.p_values.better.round(4).tolist(), result.out_of_reach  # three rankings: no p-value is below 1/3
    ([0.3333], 1)
    """

    measure: str
    query_ids: Any
    p_values: PValues
    inference: Inference = field(default_factory=Inference)

    @property
    def queries(self) -> int:
        """Queries with a choice."""
        return int(self.p_values.choice.sum())

    @property
    def no_choice(self) -> int:
        """Queries without a choice."""
        return len(self.p_values) - self.queries

    @property
    def better(self) -> int:
        """Queries on which the run is significantly better than random."""
        return int((self.outcomes == "better").sum())

    @property
    def worse(self) -> int:
        """Queries on which the run is significantly worse than random."""
        return int((self.outcomes == "worse").sum())

    @property
    def no_evidence(self) -> int:
        """Queries with a choice on which the run is neither."""
        return self.queries - self.better - self.worse

    @cached_property
    def corrected(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """p-values of "no better" and of "no worse than random", corrected over the queries with a choice; else 1."""
        choice = self.p_values.choice
        corrected = np.ones((2, len(choice)))
        for row, p in zip(corrected, (self.p_values.better, self.p_values.worse), strict=True):
            row[choice] = self.inference.correct(p[choice])
        return corrected[0], corrected[1]

    @cached_property
    def outcomes(self) -> NDArray[np.str_]:
        """One of `OUTCOMES` for each query."""
        better, worse = (p < self.inference.alpha for p in self.corrected)
        outcome = np.select([~self.p_values.choice, better, worse], [3, 0, 2], 1)
        return np.asarray(np.array(OUTCOMES)[outcome])

    @property
    def better_by_correction(self) -> dict[str, int]:
        """Queries that are better with Holm's correction, with Benjamini and Hochberg's, and without correction.

        Holm bounds the probability of a single false "better" by the level, Benjamini and Hochberg bound the expected
        fraction of false ones among them. Without correction, this fraction of all random queries would be "better".
        """
        policies = [replace(self.inference, correction=name) for name in ("holm", "benjamini-hochberg", "none")]
        return {policy.correction: replace(self, inference=policy).better for policy in policies}

    @property
    def above_expected(self) -> int:
        """Queries on which the run scores more than random rankings do in the mean; a random one does on about half."""
        return int((self.p_values.gain > 0).sum())

    @property
    def fraction_better(self) -> float:
        """Estimated fraction of the queries with a choice on which the run is better than random at all.

        max(0, 1 - 2 * fraction of p-values above 1/2): Storey's estimate (A direct approach to false discovery rates,
        2002) with lambda = 1/2. It errs downwards, because p-values of discrete distributions, and of queries on which
        the run is worse than random, lie above 1/2 more often. NaN without a query that has a choice.
        """
        p = self.p_values.better[self.p_values.choice]
        return max(0.0, 1 - 2 * float((p > 0.5).mean())) if len(p) else float("nan")

    @property
    def out_of_reach(self) -> int:
        """Queries with a choice whose best ranking would not be significant, even without correction."""
        return int((self.p_values.choice & (self.p_values.smallest >= self.inference.alpha)).sum())

    @cached_property
    def combined(self) -> dict[str, float]:
        """p-values of "the run is no better than random on any query"; 1 without a query that has a choice.

        ``fisher`` and ``higher_criticism`` assume that the queries are independent. ``fisher_mid_p`` is Fisher's method
        with mid-p-values, which makes up for the discreteness of the measure. ``harmonic_mean`` holds whatever the
        dependence between queries is. See `rankbound.evaluation.combined_p_values`.
        """
        p, mid = (array[self.p_values.choice] for array in (self.p_values.better, self.p_values.mid))
        policy = self.inference
        return {
            "fisher": fisher(p),
            "fisher_mid_p": fisher(mid),
            "higher_criticism": higher_criticism(p, resamples=policy.resamples, seed=policy.seed),
            "harmonic_mean": harmonic_mean(p),
        }

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per query: qid, gain, p_better, p_worse, mid_p, p_better_corrected, p_worse_corrected, outcome."""
        import polars as pl

        p = self.p_values
        return pl.DataFrame(
            {
                "qid": pl.Series(self.query_ids),
                "gain": p.gain,
                "p_better": p.better,
                "p_worse": p.worse,
                "mid_p": p.mid,
                "p_better_corrected": self.corrected[0],
                "p_worse_corrected": self.corrected[1],
                "outcome": pl.Series(self.outcomes.tolist(), dtype=pl.String),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON."""
        return {
            "queries": self.queries,
            "better": self.better,
            "no_evidence": self.no_evidence,
            "worse": self.worse,
            "no_choice": self.no_choice,
            "better_by_correction": self.better_by_correction,
            "above_expected": self.above_expected,
            "fraction_better": self.fraction_better,
            "out_of_reach": self.out_of_reach,
            "combined": self.combined,
            "confidence": self.inference.confidence,
            "correction": self.inference.correction,
        }

    def __repr__(self) -> str:
        return (
            f"AgainstRandom({self.measure}: better on {self.better} of {self.queries} queries, worse on {self.worse}; "
            f"no choice on {self.no_choice})"
        )


def against_random(
    qrels: Any, run: Any = None, measures: Any = None, *, inference: Inference | None = None, **options: Any
) -> Mapping[str, AgainstRandom]:
    """Compare a run with random rankings of the same candidates, query by query: on how many is it better?

    The run is read as a complete ranking of the candidates. For each query, the p-value is the probability that a
    random ranking scores at least as well, from the null distribution of the measure. Where the run ties documents, it
    is the mean over the orders of the ties. Such a mean can exceed the level of a test by a factor of up to 2 in theory
    (Rueschendorf 1982), and stays below it in practice; ``Inference(confidence=0.975)`` bounds it by 5 % in any case.

    Parameters
    ----------
    qrels, run, measures, options:
        As in `rankbound.evaluate`. Or an `Evaluation` that was made with ``against_random=True`` as the only data. A
        normalized measure is replaced by its plain one: a normalization does not change which ranking is better.
    inference:
        The policy: level (1 - ``confidence``), correction over queries, and draws for higher criticism.

    Returns
    -------
    One `AgainstRandom` for each plain measure, by name.

    >>> qrels = {f"q{i}": {f"d{j}": int(j < 2) for j in range(20)} for i in range(5)}
    >>> run = {f"q{i}": {f"d{j}": -j if i else 0.0 for j in range(20)} for i in range(5)}  # q0: all tied
    >>> result = against_random(qrels, run, ["AP", "EM(AP)"])["AP"]
    >>> result.better, result.no_evidence, round(float(result.p_values.better[1]), 4)  # 1 / 190 pairs of ranks
    (4, 1, 0.0053)
    """
    if isinstance(qrels, Evaluation):
        if run is not None or measures is not None or options:
            raise ArgumentError("an Evaluation has its run and measures: against_random(evaluation) takes no others")
        evaluation = qrels
    else:
        evaluation = evaluate(qrels, run, measures, against_random=True, **options)
    if not evaluation.p_values:
        raise ArgumentError("the evaluation must have p-values: evaluate(..., against_random=True)")
    policy = Inference() if inference is None else inference
    return {name: AgainstRandom(name, evaluation.query_ids, p, policy) for name, p in evaluation.p_values.items()}


def systems_against_random(
    scores: ScoreMatrix, inference: Inference | None = None, systems: Sequence[str] | None = None
) -> dict[str, AgainstRandom]:
    """Compare the systems of a score matrix with random rankings by its first measure without its bounding.

    Empty where the matrix has no p-values, because it does not come from rankings or they were not requested.
    """
    if not scores.p_values:
        return {}
    measure, policy = str(parse_measure(scores.lead).plain), Inference() if inference is None else inference
    by_system = dict(zip(scores.systems, scores.p_values, strict=True))
    return {
        name: AgainstRandom(measure, scores.query_ids, by_system[name], policy)
        for name in (scores.systems if systems is None else systems)
    }
