"""One policy for statistical inference: confidence intervals, tests, corrections, resamples and seed.

`rankbound.compare`, `Evaluation.interval`, the commands ``compare`` and ``report``, the report page and the tables of
studies all take an `Inference` and call its methods, so that the same runs and the same policy give the same p-values
and intervals everywhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import is_between
from rankbound.errors import ArgumentError, InferenceWarning
from rankbound.evaluation import significance
from rankbound.evaluation.intervals import bootstrap_intervals, student_interval_columns
from rankbound.evaluation.letters import compact_letters
from rankbound.evaluation.power import detectable
from rankbound.evaluation.resampling import check_confidence, check_differences, check_resamples, standard_deviations
from rankbound.evaluation.significance import benjamini_hochberg, bonferroni, holm

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.evaluation.scores import ScoreMatrix

INTERVALS = ("bca", "percentile", "t")
TESTS = ("t", "wilcoxon", "randomization")
CORRECTIONS = ("holm", "bonferroni", "benjamini-hochberg", "none")
LARGE = 5_000  # queries from which on the bootstrap gives Student's interval, only slower
FEWEST_QUERIES = 10  # with fewer, neither the bootstrap nor the t distribution can be trusted
FEWEST_FOR_INTERVALS = 5  # of a group or a type of queries; with fewer there is no interval
MANY_FOR_WILCOXON = 1_000  # beyond, skewed differences with a mean of 0 are called significant too often
_SMALLEST_ALPHA = 1e-9  # corrections for several tests divide it further
_DRAWS_IN_TAIL = 10  # with fewer, a quantile of the bootstrap distribution is noise


@dataclass(frozen=True, slots=True)
class Inference:
    """How intervals and p-values are computed.

    Parameters
    ----------
    confidence:
        Level of the intervals; 1 - confidence, `alpha`, is the level of the tests.
    interval:
        ``"bca"`` (bias-corrected and accelerated bootstrap, Efron 1987), ``"percentile"`` (bootstrap) or ``"t"``
        (Student's). From 5,000 queries on, and at levels with fewer than 10 of the resamples in a tail, bootstrap
        intervals are replaced by Student's.
    test:
        The test that decides what is called significant: ``"t"`` (paired t test), ``"wilcoxon"`` (signed ranks) or
        ``"randomization"`` (sign flips). `rankbound.compare` reports the p-values of all three.
    correction:
        For several tests: ``"holm"`` or ``"bonferroni"`` (probability of any false rejection), ``"benjamini-hochberg"``
        (false discovery rate) or ``"none"``.
    resamples, seed:
        Number of draws of the bootstrap and of the randomization test, and the seed of the random numbers.
    power:
        The power at which minimum detectable differences are reported.

    >>> Inference(confidence=0.99).alpha
    0.01
    >>> Inference(test="z")
    Traceback (most recent call last):
    ...
    rankbound.errors.ArgumentError: test must be one of t, wilcoxon, randomization, got 'z'
    """

    confidence: float = 0.95
    interval: str = "bca"
    test: str = "t"
    correction: str = "holm"
    resamples: int = 10_000
    seed: int = 0
    power: float = 0.8

    def __post_init__(self) -> None:
        check_confidence(self.confidence, _SMALLEST_ALPHA)
        check_resamples(self.resamples)
        for name, known in (("interval", INTERVALS), ("test", TESTS), ("correction", CORRECTIONS)):
            if getattr(self, name) not in known:
                raise ArgumentError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise ArgumentError(f"seed must be an integer of at least 0, got {self.seed!r}")
        if not is_between(self.power, 0, 1):
            raise ArgumentError(f"power must lie between 0 and 1, got {self.power}")

    @property
    def alpha(self) -> float:
        """The level of the tests, 1 - confidence."""
        return round(1 - self.confidence, 12)

    def changed(
        self, *, confidence: float | None = None, resamples: int | None = None, seed: int | None = None
    ) -> Inference:
        """The policy with other settings; None leaves a setting as it is.

        >>> Inference(seed=3).changed(confidence=0.9)
        Inference(confidence=0.9, interval='bca', test='t', correction='holm', resamples=10000, seed=3, power=0.8)
        """
        return replace(
            self,
            confidence=self.confidence if confidence is None else confidence,
            resamples=self.resamples if resamples is None else resamples,
            seed=self.seed if seed is None else seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self)

    # ---- one function for each question, of queries x comparisons ----------------------------------------------------

    def p_values(self, differences: ArrayLike, test: str | None = None) -> NDArray[np.float64]:
        """p-value of each column of differences (queries x comparisons) by the policy's test, or by another one.

        >>> Inference().p_values([[1.0], [2.0], [3.0]]).round(5).tolist()
        [0.07418]
        """
        test = self.test if test is None else test
        if test == "t":
            return significance.paired_t_columns(differences)
        if test == "wilcoxon":
            return significance.wilcoxon_columns(differences)
        if test == "randomization":
            return significance.randomization_columns(differences, resamples=self.resamples, seed=self.seed)
        raise ArgumentError(f"test must be one of {', '.join(TESTS)}, got {test!r}")

    def intervals(self, values: ArrayLike, confidence: float | None = None) -> NDArray[np.float64]:
        """Confidence interval of the mean of each column (queries x comparisons): 2 x comparisons; NaN for one query.

        >>> Inference(interval="t").intervals([[1.0], [2.0], [3.0]]).round(4).tolist()
        [[-0.4841], [4.4841]]
        """
        return np.asarray(self.intervals_at(values, [self.confidence if confidence is None else confidence])[0])

    def interval_of(self, values: ArrayLike) -> tuple[float, float]:
        """`intervals` of one column, the same in any order of the values.

        >>> [round(end, 4) for end in Inference().interval_of(np.arange(6000.0))]
        [2955.6614, 3043.3386]
        """
        column = np.sort(np.asarray(values, dtype=np.float64))
        if len(column) == 0:
            return float("nan"), float("nan")
        low, high = self.intervals(column[:, None])[:, 0].tolist()
        return low, high

    def intervals_at(self, values: ArrayLike, confidences: Sequence[float]) -> NDArray[np.float64]:
        """`intervals` at several levels from the same draws: levels x 2 x comparisons."""
        d = check_differences(values, ndim=2)
        methods = [self.interval_method(len(d), confidence) for confidence in confidences]
        result = np.empty((len(confidences), 2, d.shape[1]))
        drawn = [index for index, method in enumerate(methods) if method != "t"]
        if drawn:
            result[drawn] = bootstrap_intervals(
                d,
                [confidences[index] for index in drawn],
                resamples=self.resamples,
                seed=self.seed,
                accelerated=self.interval == "bca",
            )
        for index, method in enumerate(methods):
            if method == "t":
                result[index] = student_interval_columns(d, confidence=confidences[index])
        return result

    def interval_method(self, queries: int, confidence: float | None = None) -> str:
        """The method that is used for so many queries at a level; see the class for when it is not ``interval``.

        >>> Inference().interval_method(50), Inference().interval_method(6_000), Inference().interval_method(50, 0.9999)
        ('bca', 't', 't')
        """
        confidence = self.confidence if confidence is None else confidence
        if queries >= LARGE or self.resamples * (1 - confidence) / 2 < min(_DRAWS_IN_TAIL, self._draws_in_own_tail):
            return "t"
        return self.interval

    @property
    def _draws_in_own_tail(self) -> float:
        # a policy with few resamples gets the bootstrap intervals that it asks for, at its own level
        return self.resamples * (1 - self.confidence) / 2

    def correct(self, p_values: ArrayLike) -> NDArray[np.float64]:
        """p-values corrected for all tests in ``p_values``.

        NaN, the p-value of a comparison without a query to test, is no test: it stays NaN, and the others are
        corrected as if it were not there. Every table, page and report corrects by this method.

        >>> Inference(correction="bonferroni").correct([0.01, float("nan"), 0.04]).tolist()
        [0.02, nan, 0.08]
        """
        corrections: Mapping[str, Callable[[ArrayLike], NDArray[np.float64]]] = {
            "holm": holm,
            "bonferroni": bonferroni,
            "benjamini-hochberg": benjamini_hochberg,
        }
        p = np.array(p_values, dtype=np.float64)
        if self.correction != "none":
            is_test = ~np.isnan(p)
            p[is_test] = corrections[self.correction](p[is_test])
        return p

    def corrected_alpha(self, p_values: ArrayLike) -> float:
        """The level of each test, and of its interval, that goes with the correction of m tests.

        alpha / m for Bonferroni and Holm, whose intervals hold simultaneously with probability 1 - alpha. They are
        those of Bonferroni, because Holm's procedure has no two-sided intervals of use: its test can reject where
        the interval still reaches 0. For Benjamini and Hochberg, R alpha / m with R rejections (at least 1), which
        bounds the false coverage rate (Benjamini and Yekutieli 2005). NaN is no test, as in `correct`.

        >>> Inference().corrected_alpha([0.001, 0.2, 0.3, 0.4])
        0.0125
        """
        p = np.asarray(p_values, dtype=np.float64)
        p = p[~np.isnan(p)]
        if self.correction == "none" or len(p) == 0:
            return self.alpha
        if self.correction == "benjamini-hochberg":
            return self.alpha * max(1, int((benjamini_hochberg(p) < self.alpha).sum())) / len(p)
        return self.alpha / len(p)

    def minimum_detectable_differences(self, differences: ArrayLike, alpha: float | None = None) -> NDArray[np.float64]:
        """`minimum_detectable_difference` of each column (queries x comparisons) at the policy's level and power.

        >>> Inference().minimum_detectable_differences([[1.0], [2.0], [3.0]]).round(3).tolist()
        [3.264]
        """
        d = check_differences(differences, ndim=2)
        return detectable(standard_deviations(d), len(d), self.alpha if alpha is None else alpha, self.power)

    # ---- notes -------------------------------------------------------------------------------------------------------

    def notes(self, queries: Mapping[str, int]) -> tuple[str, ...]:
        """Sentences on intervals that rest on too few queries; ``queries`` says how many each measure has.

        >>> Inference().notes({"AP": 4})
        ('The intervals of AP rest on 4 queries; with fewer than 10 they are not reliable.',)
        """
        few = {name: count for name, count in queries.items() if 0 < count < FEWEST_QUERIES}
        counts: dict[int, list[str]] = {}
        for name, count in few.items():
            counts.setdefault(count, []).append(name)
        return tuple(
            f"The intervals of {', '.join(names)} rest on {count} {'query' if count == 1 else 'queries'}; "
            f"with fewer than {FEWEST_QUERIES} they are not reliable."
            for count, names in counts.items()
        )


def caution_about_wilcoxon(queries: Iterable[int]) -> str:
    """A sentence if a Wilcoxon test has more than 1,000 queries for some measure, otherwise nothing.

    >>> caution_about_wilcoxon([50, 1_000])
    ''
    """
    if max(queries, default=0) <= MANY_FOR_WILCOXON:
        return ""
    return (
        f"With more than {MANY_FOR_WILCOXON:,} queries, the Wilcoxon test finds skewed differences significant even if "
        "their mean is 0, because it tests whether they are symmetric about 0; the t test does not."
    )


def warn(notes: Sequence[str], stacklevel: int = 3) -> None:
    """Issue an `InferenceWarning` for each note."""
    for note in notes:
        warnings.warn(note, InferenceWarning, stacklevel=stacklevel)


# ---- over the pairs of a score matrix --------------------------------------------------------------------------------

Statistic = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]


def pair_statistics(
    scores: ScoreMatrix,
    measure: str,
    source: int,
    systems: Sequence[int] | NDArray[np.int64],
    baselines: Sequence[int] | NDArray[np.int64],
    statistic: Statistic,
) -> NDArray[np.float64]:
    """A statistic of the differences (system minus baseline) of pairs of systems on one data set.

    ``statistic`` maps differences, queries x pairs, to an array whose last axis is the pairs; pairs with the same
    queries are handed over together. The result is NaN for pairs without a query in common.
    """
    systems, baselines = np.asarray(systems, np.int64), np.asarray(baselines, np.int64)
    result: NDArray[np.float64] | None = None
    chosen = scores.in_data_set(source)
    for pairs, queries in _same_queries(np.isfinite(scores.values[measure]) & chosen, systems, baselines):
        d = scores.differences(measure, systems[pairs], baselines[pairs])[queries]
        values = np.asarray(statistic(d), dtype=np.float64)
        if result is None:
            result = np.full((*values.shape[:-1], len(systems)), np.nan)
        result[..., pairs] = values
    return np.full(len(systems), np.nan) if result is None else result


def _same_queries(
    known: NDArray[np.bool_], systems: NDArray[np.int64], baselines: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Pairs of systems that have the same queries in common, with these queries."""
    if len(systems) == 0:
        return
    rows, code = np.unique(known, axis=0, return_inverse=True)  # systems with the same queries are alike
    code = code.ravel()
    kinds = np.unique(np.stack([code[systems], code[baselines]]), axis=1)
    for first, second in kinds.T:
        queries = rows[first] & rows[second]
        if queries.any():
            yield np.flatnonzero((code[systems] == first) & (code[baselines] == second)), queries


def mean_intervals(scores: ScoreMatrix, measure: str, source: int, policy: Inference) -> NDArray[np.float64]:
    """Confidence interval of the mean of each system on one data set: 2 x systems; NaN where there is none."""
    values = scores.values[measure]
    known = np.isfinite(values) & scores.in_data_set(source)
    result = np.full((2, len(values)), np.nan)
    rows, code = np.unique(known, axis=0, return_inverse=True)
    for kind, queries in enumerate(rows):
        if queries.any():
            chosen = np.flatnonzero(code.ravel() == kind)
            result[:, chosen] = policy.intervals(values[chosen][:, queries].T)
    return result


def group_letters(
    scores: ScoreMatrix, policy: Inference, order: Mapping[tuple[int, str], Sequence[int]]
) -> dict[tuple[int, str], dict[int, str]]:
    """Compact letters of the systems of each data set and measure: those that share a letter do not differ.

    All pairs of systems are tested, and corrected over all pairs, measures and data sets. ``order`` has the systems to
    compare, the best first, for each pair of data set and measure.
    """
    raw: dict[tuple[int, str], NDArray[np.float64]] = {}
    for (source, measure), systems in order.items():
        first, second = np.triu_indices(len(systems), k=1)
        index = np.asarray(systems, np.int64)
        raw[source, measure] = pair_statistics(scores, measure, source, index[second], index[first], policy.p_values)
    every = policy.correct(np.concatenate([*raw.values(), np.empty(0)]))
    letters, start = {}, 0
    for key, systems in order.items():
        p = every[start : start + len(raw[key])]
        start += len(p)
        different = np.zeros((len(systems), len(systems)), bool)
        different[np.triu_indices(len(systems), k=1)] = p < policy.alpha
        letters[key] = dict(zip(systems, compact_letters(different | different.T), strict=True))
    return letters
