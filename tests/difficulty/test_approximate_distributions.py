"""The fast distributions of graded labels: their error against enumeration, exact programs and large samples."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from unittest.mock import MagicMock, Mock, call

import numpy as np
import pytest
from numpy.typing import NDArray

from rankbound.cli import output
from rankbound.difficulty.bounds import bounds_of
from rankbound.difficulty.distribution import Distribution, choice, distribution, many
from rankbound.difficulty.distribution.count_vectors import count_vectors, number_of_vectors
from rankbound.difficulty.distribution.many import distributions_of
from rankbound.difficulty.distribution.saddlepoint import find_cumulants
from rankbound.errors import ArgumentError
from rankbound.measures import LabelCounts, parse_measure

ERROR = 2e-3  # what the documentation promises
EXPONENTIAL = "nDCG(dcg='exp-log2')"
# Fractions of the labels 0, 1, ...; some are roughly those of the data sets that they are named after.
FREQUENCIES = {
    "even": (0.2, 0.2, 0.2, 0.2, 0.2),
    "MSLR": (0.52, 0.32, 0.13, 0.02, 0.01),
    "MQ2008": (0.8, 0.13, 0.07),
    "OHSUMED": (0.68, 0.18, 0.14),
    "rare": (0.8, 0.1, 0.05, 0.03, 0.02),
    "common": (0.05, 0.1, 0.15, 0.3, 0.4),
    "six": (0.3, 0.2, 0.2, 0.1, 0.1, 0.1),
    "four": (0.4, 0.3, 0.2, 0.1),
    "binary": (0.7, 0.3),
}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKBOUND_CACHE", "")
    choice._remembered.cache_clear()
    many._recent.clear()


def drawn_labels(kind: str, n: int, seed: int) -> list[int]:
    """Labels of a query whose frequencies are those of the kind."""
    fractions = FREQUENCIES[kind]
    labels = np.random.default_rng(seed).choice(len(fractions), n, p=fractions)
    labels[0] = len(fractions) - 1  # so that no query lacks a relevant document
    return sorted(labels.tolist(), reverse=True)


def gain(measure: str, labels: Sequence[int]) -> NDArray[np.float64]:
    array = np.array(labels, dtype=np.float64)
    return 2**array - 1 if "exp" in measure else array


def every_sequence(measure: str, labels: list[int], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores and probabilities of all sequences of k labels, for nDCG, DCG and ERR, with formulas written out here."""
    levels, counts = np.unique(labels, return_counts=True)
    weights = 1 / np.log2(np.arange(2, k + 2))
    codes = np.array(list(itertools.product(range(len(levels)), repeat=k)))
    probability, left = np.ones(len(codes)), np.tile(counts, (len(codes), 1)).astype(float)
    for rank in range(k):
        code = codes[:, rank]
        probability *= left[np.arange(len(codes)), code] / (len(labels) - rank)
        left[np.arange(len(codes)), code] -= 1
    scores = gain(measure, levels)[codes] @ weights
    if measure == "ERR":
        stop = ((2.0**levels - 1) / 2**4)[codes]
        reach = np.cumprod(np.hstack((np.ones((len(codes), 1)), 1 - stop[:, :-1])), axis=1)
        scores = (stop * reach) @ (1 / np.arange(1, k + 1))
    if measure.startswith("nDCG"):
        scores /= gain(measure, labels[:k]) @ weights
    possible = probability > 0
    return scores[possible], probability[possible]


def largest_error(null: Distribution, scores: NDArray[np.float64], probabilities: NDArray[np.float64]) -> float:
    """The largest distance of two distribution functions, on both sides of every step of either."""
    order = np.argsort(scores)
    scores, total = scores[order], np.concatenate(([0.0], np.cumsum(probabilities[order])))
    x = np.concatenate((scores, null.scores))
    close = 1e-9  # more than the rounding of equal scores
    at = np.abs(null.cdf(x + close) - total[np.searchsorted(scores, x + close, side="right")])
    before = np.abs(1 - null.survival(x - close) - total[np.searchsorted(scores, x - close, side="left")])
    return float(max(at.max(), before.max()))


def check_distribution(null: Distribution, measure: str, labels: list[int]) -> None:
    bounds = bounds_of(parse_measure(measure), LabelCounts.from_labels(labels, [0, len(labels)]))
    assert null.mean == pytest.approx(float(bounds.expected[0]), abs=1e-7)
    assert null.scores[0] >= bounds.worst[0] - 1e-12
    assert null.scores[-1] == pytest.approx(float(bounds.best[0]), abs=1e-12)
    assert (np.diff(null.scores) > 0).all()
    assert (null.probabilities > 0).all()
    assert null.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert (np.diff(null.cdf(np.linspace(-0.1, null.scores[-1] + 0.1, 500))) >= 0).all()


@pytest.mark.parametrize("kind", sorted(FREQUENCIES))
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("measure", ["nDCG", EXPONENTIAL, "DCG", "ERR"])
def test_measures_with_cutoffs_against_every_sequence(measure: str, k: int, kind: str) -> None:
    for n in (12, 50, 90):
        labels = [min(label, 4) for label in drawn_labels(kind, n, seed=n)]  # ERR takes labels up to 4
        null = distribution(f"{measure}@{k}", labels=labels)
        assert largest_error(null, *every_sequence(measure, labels, k)) < ERROR
        if null.method == "approximate":
            check_distribution(null, f"{measure}@{k}", labels)


@pytest.mark.parametrize("kind", ["MQ2008", "OHSUMED"])
@pytest.mark.parametrize("measure", ["nDCG", EXPONENTIAL, "ERR"])
def test_cutoff_of_ten_against_every_sequence(measure: str, kind: str) -> None:
    for n in (30, 50, 120):
        labels = drawn_labels(kind, n, seed=n)
        null = distribution(f"{measure}@10", labels=labels, method="approximate")
        assert largest_error(null, *every_sequence(measure, labels, 10)) < ERROR
        check_distribution(null, f"{measure}@10", labels)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["even", "MSLR", "rare", "common", "four"])
@pytest.mark.parametrize("measure", ["nDCG", EXPONENTIAL, "DCG", "ERR"])
def test_cutoff_of_nine_with_more_levels_against_every_sequence(measure: str, kind: str) -> None:
    labels = drawn_labels(kind, 50, seed=4)
    null = distribution(f"{measure}@9", labels=labels)
    if (measure, kind) == ("ERR", "common"):  # the first rank decides nearly everything: steps finer than any grid
        assert null.method in ("dynamic", "sampled")
        return
    assert null.method == "approximate"
    assert largest_error(null, *every_sequence(measure, labels, 9)) < ERROR


@pytest.mark.parametrize(
    ("measure", "kind", "n"),
    [("nDCG", "even", 50), (EXPONENTIAL, "even", 50), ("nDCG", "MSLR", 36), (EXPONENTIAL, "MSLR", 40),
     ("nDCG", "common", 30), (EXPONENTIAL, "OHSUMED", 36), ("RBP(gain='graded')", "OHSUMED", 50), ("DCG", "four", 24),
     ("RBP(gain='graded')", "common", 24), ("nDCG@20", "OHSUMED", 50), ("nDCG@20", "MSLR", 40), ("nDCG", "rare", 60)],
)  # fmt: skip
def test_full_rankings_against_the_dynamic_program(measure: str, kind: str, n: int) -> None:
    """The program has an error of its own: half of the largest probability of one of its points."""
    labels = drawn_labels(kind, n, seed=1)
    fast = distribution(measure, labels=labels)
    exact = distribution(measure, labels=labels, method="dynamic")
    inner = exact.probabilities[1:-1].max() / 2
    assert inner < 1e-3
    assert largest_error(fast, exact.scores, exact.probabilities) < ERROR + inner
    if fast.method == "approximate":
        check_distribution(fast, measure, labels)


def sampled_scores(measure: str, labels: list[int], k: int, size: int, seed: int) -> NDArray[np.float64]:
    """nDCG of random orders: the first k labels of a partial Fisher-Yates shuffle of each row."""
    rng = np.random.default_rng(seed)
    n, chunk = len(labels), 250_000
    weights = (1 / np.log2(np.arange(2, k + 2))).astype(np.float64)
    gains = gain(measure, labels)
    rows = np.arange(chunk)
    scores = np.empty(size)
    for start in range(0, size, chunk):
        orders = np.tile(np.arange(n, dtype=np.int8), (chunk, 1))
        total = np.zeros(chunk)
        for rank in range(k):
            pick = rng.integers(rank, n, chunk)
            chosen = orders[rows, pick]
            orders[rows, pick] = orders[:, rank]
            total += weights[rank] * gains[chosen]
        scores[start : start + chunk] = total
    return scores / (gain(measure, sorted(labels, reverse=True)[:k]) @ weights)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["even", "MSLR"])
@pytest.mark.parametrize(
    ("measure", "k"), [("nDCG@10", 10), (f"{EXPONENTIAL}@10", 10), ("nDCG", 50), (EXPONENTIAL, 50)]
)
def test_fifty_documents_against_ten_million_samples(measure: str, k: int, kind: str) -> None:
    labels = drawn_labels(kind, 50, seed=9)
    size = 10_000_000
    scores = sampled_scores(measure, labels, k, size, seed=2)
    null = distribution(measure, labels=labels, method="approximate")
    assert largest_error(null, scores, np.full(size, 1 / size)) < ERROR


@pytest.mark.full("takes seconds")
def test_a_query_has_the_same_distribution_alone_and_among_others() -> None:
    rng = np.random.default_rng(5)
    queries, n = 40, 50
    labels = rng.integers(0, 5, (queries, n))
    labels[::13] = rng.choice(5, labels[::13].shape, p=FREQUENCIES["rare"])
    counts = LabelCounts.from_labels(labels.ravel(), np.arange(queries + 1) * n)
    for measure in ("nDCG@10", "nDCG", "DCG@5", "RBP(gain='graded')@10", "ERR@6"):
        plain = parse_measure(measure)
        progress = Mock()
        together = distributions_of(plain, counts, precise=True, cache=False, progress=progress)
        distinct = len(together.distributions)
        assert progress.call_args_list == [call(done, distinct) for done in range(1, distinct + 1)]
        for query in range(0, queries, 6):
            scores, probabilities, method = together.distributions[together.class_of[query]]
            alone = distribution(plain, labels=labels[query], method=method)
            assert alone.scores == pytest.approx(scores, abs=1e-12)
            assert alone.probabilities == pytest.approx(probabilities, abs=1e-12)


def test_commands_show_how_many_distributions_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Mock(isatty=lambda: True)
    status = MagicMock()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("rich.console.Console.status", status)
    counts = LabelCounts.binary(np.arange(3, 14), 1)
    with output.working("evaluating ..."):
        distributions_of(parse_measure("AP"), counts)
    distributions_of(parse_measure("AP"), counts)  # outside: nobody watches
    shown = [update.args[0] for update in status.return_value.__enter__.return_value.update.call_args_list]
    begins = [f"evaluating ... distribution {done} of 11" for done in range(1, 12)]
    assert [text.partition(",")[0] for text in shown] == begins
    assert shown[-1].endswith(", about 0 s left")


def test_approximations_are_kept_in_memory_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many._recent, "most_points", 4_000)
    labels = np.random.default_rng(0).integers(0, 4, 6 * 40)
    counts = LabelCounts.from_labels(labels, np.arange(7) * 40)
    plain = parse_measure("nDCG@8")
    first = distributions_of(plain, counts)
    assert 0 < many._recent.points <= 4_000
    assert sum(len(kept[0]) for kept in many._recent.kept.values()) == many._recent.points
    again = distributions_of(plain, counts)
    pairs = list(zip(first.distributions, again.distributions, strict=True))
    assert all(before[1] == pytest.approx(after[1], abs=1e-12) for before, after in pairs)
    assert any(before[0] is after[0] for before, after in pairs)
    assert not all(before[0] is after[0] for before, after in pairs)


def test_any_gains_and_any_base_level() -> None:
    """Levels are real numbers; the commonest one may be any of them."""
    for labels in ([0.5] * 20 + [1.25] * 3 + [3.75] * 2, [2.5] * 4 + [0.25] * 6 + [7.0] * 30):
        null = distribution("DCG@4", labels=labels, method="approximate")
        assert largest_error(null, *every_sequence("DCG", labels, 4)) < ERROR  # type: ignore[arg-type]


def test_depth_and_likely_arrangements() -> None:
    labels = drawn_labels("rare", 50, seed=3)
    null = distribution("DCG", labels=labels, depth=5, method="approximate")
    assert largest_error(null, *every_sequence("DCG", labels, 5)) < ERROR
    irrelevant = labels.count(0)
    none = np.prod([(irrelevant - i) / (50 - i) for i in range(5)])
    assert null.cdf(0.0) == pytest.approx(none, rel=1e-9)  # nothing relevant among the first ranks is kept exactly


@pytest.mark.parametrize(
    ("measure", "labels", "strength"),
    [
        ("nDCG", [1] * 60 + [0] * 60, 0.5),
        ("nDCG@10", [2, 1] * 10 + [0] * 30, 0.7),
        ("AP", [2, 1] * 10 + [0] * 30, 0.5),
    ],
)
def test_approximation_needs_graded_labels_and_random_ranking(measure: str, labels: list[int], strength: float) -> None:
    with pytest.raises(ArgumentError, match="method='approximate' needs random ranking and 3 to 12 levels"):
        distribution(measure, labels=labels, method="approximate", ranker_strength=strength)
    assert distribution(measure, labels=labels, ranker_strength=strength).method == "dynamic"


def test_expansion_that_does_not_settle_is_rejected() -> None:
    labels = [4, 3, 2] + [1] * 5 + [0] * 42
    with pytest.raises(ArgumentError, match="choose method='auto'"):
        distribution(EXPONENTIAL, labels=labels, method="approximate")
    assert distribution(EXPONENTIAL, labels=labels).method == "dynamic"


def test_count_vectors_have_hypergeometric_probabilities() -> None:
    vectors = count_vectors(3, 4)
    assert len(vectors.last) == number_of_vectors(3, 4) == 15
    probability = vectors.probabilities(np.array([[2, 3, 1]]))[0]
    labels = [0, 0, 1, 1, 1, 2]
    orders = list(itertools.permutations(labels, 4))
    for row, expected in zip(vectors.last.tolist(), probability, strict=True):
        hits = sum([order.count(level) for level in range(3)] == row for order in orders)
        assert expected == pytest.approx(hits / len(orders), abs=1e-12)
    assert vectors.arrangements().sum() == pytest.approx(3**4)


def test_cumulants_of_the_tail_equal_brute_force() -> None:
    weights, levels = np.array([0.7, 0.4, 0.35, 0.1, 0.0]), np.array([3.0, 1.0, 0.0])
    left = np.array([[1, 2, 2]])
    totals = np.array([weights @ order for order in itertools.permutations([3.0, 1.0, 1.0, 0.0, 0.0])])
    centered = weights - weights.mean()
    sums = [float((centered**power).sum()) for power in (2, 3, 4)]
    moments = [float(((totals - totals.mean()) ** power).mean()) for power in (2, 3, 4)]
    second, third, fourth = (float(cumulant[0]) for cumulant in find_cumulants(sums, left, levels))
    assert [second, third, fourth] == pytest.approx([moments[0], moments[1], moments[2] - 3 * moments[0] ** 2])
