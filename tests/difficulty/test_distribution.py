"""Distributions against brute force over all orders of small lists, with values from the measures' own code."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rankbound.difficulty.bounds import bounds_of
from rankbound.difficulty.distribution import Distribution, distribution
from rankbound.difficulty.distribution.closed_form import wrong_pairs
from rankbound.errors import ArgumentError, DataError, MeasureError
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, parse_measure, rank, values

BINARY = ["AP", "SP", "RR", "RBP", "RBP(p=0.5)", "nRBP(p=0.95)", "Rprec", "U"]
CUT = ["nDCG@{k}", "DCG@{k}", "ERR@{k}", "AP@{k}", "AP(div='min')@{k}", "AP(div='k')@{k}", "AP(div='retrieved')@{k}"]
CUT += ["SP@{k}", "P@{k}", "R@{k}", "RR@{k}", "Success@{k}", "RBP@{k}", "nRBP@{k}"]
GRADED = ["nDCG", "nDCG(dcg='exp-log2')", "DCG(dcg='exp-log2')@3", "ERR", "ERR(max_rel=2)@2", "RBP(gain='graded')"]
GRADED += [
    "RBP(gain='graded', p=0.5)@3",
    "PairAcc",
    "Tau",
    "AP(rel=2)",
    "U(rel=2)",
    "P(rel=2)@2",
    "nDCG@3",
    "RR(rel=2)",
]


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKBOUND_CACHE", "")


def brute_force(measure: str, labels: list[int], depth: int | None = None) -> dict[float, float]:
    """{score: probability} over all orders of the items."""
    orders = list(itertools.permutations(labels))
    n = len(labels)
    lists = Lists(
        np.array(orders).ravel(),
        np.arange(len(orders) + 1) * n,
        scores=np.tile(np.arange(n, 0, -1.0), len(orders)),
        depths=None if depth is None else np.full(len(orders), min(depth, n)),
    )
    scores = values(rank(lists, "input"), parse_measure(measure))
    rounded, count = np.unique(scores.round(9), return_counts=True)
    return dict(zip(rounded.tolist(), (count / len(orders)).tolist(), strict=True))


def check(null: Distribution, expected: dict[float, float]) -> None:
    assert null.scores == pytest.approx(list(expected), abs=2e-9)
    assert null.probabilities == pytest.approx(list(expected.values()), abs=1e-12)


def binary_lists() -> list[tuple[int, int]]:
    return [(n, p) for n in range(1, 7) for p in range(n + 1)]


@pytest.mark.parametrize("measure", BINARY)
def test_binary_distributions_equal_brute_force(measure: str) -> None:
    for n, p in binary_lists():
        check(distribution(measure, n=n, relevant=p, cache=False), brute_force(measure, [1] * p + [0] * (n - p)))


@pytest.mark.parametrize("measure", CUT)
def test_distributions_with_cutoffs_equal_brute_force(measure: str) -> None:
    for n, p in [(1, 1), (3, 1), (4, 4), (5, 2), (5, 3), (6, 2), (6, 5)]:
        for k in range(1, 9):
            name = measure.format(k=k)
            check(distribution(name, n=n, relevant=p, cache=False), brute_force(name, [1] * p + [0] * (n - p)))


@pytest.mark.parametrize("measure", GRADED)
def test_graded_distributions_equal_brute_force(measure: str) -> None:
    for labels in (
        [2],
        [2, 1],
        [0, 0, 0],
        [2, 1, 0],
        [2, 2, 1, 0],
        [2, 1, 1, 0, 0],
        [2, 2, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 2],
    ):
        check(distribution(measure, labels=labels, cache=False), brute_force(measure, labels))


@pytest.mark.parametrize("measure", ["nDCG", "AP", "AP(div='retrieved')", "U", "PairAcc", "Tau", "ERR", "RBP", "R@3"])
def test_depth_fills_only_the_first_ranks(measure: str) -> None:
    for labels in ([1, 0, 0, 1, 0], [2, 1, 1, 0, 0]):
        for depth in range(1, 7):
            null = distribution(measure, labels=labels, depth=depth, cache=False)
            check(null, brute_force(measure, labels, depth))


@pytest.mark.parametrize(
    "measure", ["nDCG", "AP", "RBP", "ERR", "U", "SP@4", "AP(div='retrieved')@4", "nDCG@4", "P@3", "RR"]
)
@pytest.mark.parametrize("labels", [[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0], [2, 1, 1, 0, 0, 0]])
def test_dynamic_program_is_enumeration_on_a_grid(measure: str, labels: list[int]) -> None:
    """On a grid of 2^14 points scores move by a few points (except for a fraction of 1e-5), and the mean by nothing."""
    exact = distribution(measure, labels=labels, method="enumeration", cache=False)
    null = distribution(measure, labels=labels, method="dynamic", grid=2**14, cache=False)
    assert null.method == "dynamic"
    assert null.mean == pytest.approx(exact.mean, abs=1e-12)
    assert null.scores[0] >= exact.scores[0] - 1e-12
    assert null.scores[-1] <= exact.scores[-1] + 1e-12
    assert null.std == pytest.approx(exact.std, rel=1e-3)
    slack = (exact.scores[-1] - exact.scores[0]) * 8 / 2**14
    assert (null.cdf(exact.scores + slack) >= exact.cdf(exact.scores) - 1e-5).all()
    assert (null.cdf(exact.scores - slack) <= exact.cdf(exact.scores - 2 * slack) + 1e-5).all()


@pytest.mark.parametrize("measure", ["nDCG", "AP", "RBP", "nRBP(p=0.95)", "ERR"])
def test_dynamic_program_at_15_5(measure: str) -> None:
    exact = distribution(measure, n=15, relevant=5, method="enumeration", cache=False)
    null = distribution(measure, n=15, relevant=5, method="dynamic", cache=False)
    assert len(exact) <= math.comb(15, 5)
    assert np.abs(null.cdf(exact.scores) - exact.cdf(exact.scores)).max() < 2e-3


@pytest.mark.parametrize(
    "measure", ["nDCG", "nDCG@10", "AP", "AP@20", "RBP", "RBP(p=0.99)", "nRBP(p=0.95)", "ERR", "U", "SP", "PairAcc"]
)
@pytest.mark.parametrize(("n", "p"), [(30, 10), (100, 25), (100, 90), (200, 50), (400, 100)])
def test_mean_and_ends_are_the_closed_forms(measure: str, n: int, p: int) -> None:
    null = distribution(measure, n=n, relevant=p)
    bounds = bounds_of(parse_measure(measure), LabelCounts.binary(n, p))
    worst, best = sorted((float(bounds.worst[0]), float(bounds.best[0])))
    assert null.mean == pytest.approx(float(bounds.expected[0]), abs=1e-9 * max(best, 1))
    assert worst - 1e-12 <= null.scores[0]
    assert null.scores[-1] <= best + 1e-12
    assert null.probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert (null.probabilities >= 0).all()


@pytest.mark.parametrize("measure", ["nDCG", "AP", "U", "nRBP(p=0.99)"])
def test_spectral_and_grid_programs_agree(measure: str) -> None:
    from rankbound.difficulty.distribution.case import case_of
    from rankbound.difficulty.distribution.dynamic import dynamic
    from rankbound.difficulty.distribution.spectral import spectral

    case = case_of(parse_measure(measure), [1.0, 0.0], [50, 150], 200)
    null = spectral(case, 4096)
    assert null is not None
    smooth = Distribution(measure, *null, "dynamic")
    rough = Distribution(measure, *dynamic(case, 4096), "dynamic")
    assert smooth.mean == pytest.approx(rough.mean, rel=1e-9)
    assert smooth.std == pytest.approx(rough.std, rel=2e-3)
    q = np.linspace(0.001, 0.999, 99)
    assert smooth.quantile(q) == pytest.approx(rough.quantile(q), abs=1e-2 * rough.std)


@pytest.mark.parametrize("labels", [[1] * 25 + [0] * 75, [3] * 4 + [2] * 6 + [1] * 10 + [0] * 20])
@pytest.mark.parametrize("measure", ["nDCG", "nDCG@10", "AP", "RBP", "ERR", "PairAcc"])
def test_quantiles_agree_with_sampling(measure: str, labels: list[int]) -> None:
    null = distribution(measure, labels=labels)
    drawn = distribution(measure, labels=labels, method="sampled", samples=40_000, seed=1)
    assert (null.method, drawn.method) != ("sampled", "sampled")
    at = np.linspace(null.scores[0], null.scores[-1], 200)
    # Dvoretzky-Kiefer-Wolfowitz: wrong once in a million seeds, plus the weight of a grid point
    tolerance = math.sqrt(math.log(2e6) / (2 * 40_000)) + null.probabilities.max()
    assert np.abs(null.cdf(at) - drawn.cdf(at)).max() < tolerance


@pytest.mark.parametrize("measure", ["nDCG", "AP", "ERR@50", "U", "AP(div='retrieved')@200"])
def test_few_relevant_items_in_a_long_list(measure: str) -> None:
    """The grid is fine where the distribution is concentrated, and the sampler draws ranks instead of whole orders."""
    null = distribution(measure, n=1000, relevant=10)
    drawn = distribution(measure, n=1000, relevant=10, method="sampled", samples=40_000)
    assert drawn.mean == pytest.approx(null.mean, abs=5 * null.std / math.sqrt(40_000))
    assert drawn.std == pytest.approx(null.std, rel=0.1)
    middle = drawn.quantile(np.linspace(0.05, 0.95, 50))
    assert np.abs(null.cdf(middle) - drawn.cdf(middle)).max() < 0.03


@pytest.mark.parametrize(
    "measure", ["nDCG", "AP", "AP(div='retrieved')@4", "RBP", "U", "P@3", "RR", "Success@2", "ERR", "PairAcc"]
)
def test_ranker_strength_order_equals_weighted_brute_force(measure: str) -> None:
    """Plackett-Luce with weight w for relevant and 1 - w for other items, every order with its own probability."""
    labels, w = [1, 1, 0, 0, 0], 0.8
    expected: dict[float, float] = {}
    for order in itertools.permutations(range(5)):
        weight = [w if labels[i] else 1 - w for i in order]
        probability = math.prod(weight[i] / sum(weight[i:]) for i in range(5))
        lists = Lists([labels[i] for i in order], [0, 5], scores=[5.0, 4, 3, 2, 1])
        score = float(values(rank(lists, "input"), parse_measure(measure))[0].round(9))
        expected[score] = expected.get(score, 0.0) + probability
    check(distribution(measure, labels=labels, ranker_strength=w, cache=False), dict(sorted(expected.items())))
    null = distribution(measure, labels=labels, ranker_strength=w, method="dynamic", grid=2**14, cache=False)
    assert null.mean == pytest.approx(sum(s * p for s, p in expected.items()), abs=1e-8)
    drawn = distribution(measure, labels=labels, ranker_strength=w, method="sampled", samples=20_000)
    assert drawn.mean == pytest.approx(null.mean, abs=5 * null.std / math.sqrt(20_000))


def test_u_is_the_exact_mann_whitney_distribution() -> None:
    """Counts of orders with u wrong pairs are whole numbers: the coefficients of the Gaussian binomial."""
    row = [1]
    for j in range(1, 9):  # binom(12 + j, j)_q from binom(11 + j, j - 1)_q, in whole numbers
        up = row + [0] * (12 + j)
        for u in range(len(up) - 1, 12 + j - 1, -1):
            up[u] -= up[u - 12 - j]
        for u in range(j, len(up)):
            up[u] += up[u - j]
        row = up[: 12 * j + 1]
    null = distribution("U", n=20, relevant=8)
    assert null.method == "closed"
    assert null.scores.tolist() == list(range(97))
    assert null.probabilities == pytest.approx(np.array(row) / math.comb(20, 8), rel=1e-12)


def test_tails_of_u_keep_their_digits() -> None:
    probabilities = wrong_pairs([40, 60])
    assert probabilities[:3] == pytest.approx(np.array([1, 1, 2]) / math.comb(100, 40), rel=1e-10)
    assert probabilities[-1] == pytest.approx(1 / math.comb(100, 40), rel=1e-10)


def test_u_of_long_lists_keeps_mean_and_variance() -> None:
    n, p = 800, 400  # more wrong pairs than are kept point by point
    null = distribution("U", n=n, relevant=p)
    assert null.method == "dynamic"
    assert null.mean == pytest.approx(p * (n - p) / 2)
    assert null.std == pytest.approx(math.sqrt(p * (n - p) * (n + 1) / 12), rel=1e-5)


def test_thesis_example() -> None:
    """AP of two items, one relevant: 1 or 1/2, equally likely; of three items, two relevant: mean 29/36."""
    assert distribution("AP", n=2, relevant=1).scores.tolist() == [0.5, 1]
    assert distribution("AP", n=3, relevant=2).mean == pytest.approx(29 / 36)


def test_fallback_of_many_levels_says_sampled() -> None:
    null = distribution("ERR(max_rel=20)", labels=list(range(15)) * 10, samples=200, cache=False)
    assert null.method == "sampled"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 3}, "relevant must be an integer of at least 0, got None"),
        ({"n": 3, "relevant": 4}, "relevant must not exceed n, 3, got 4"),
        ({"n": 3.5, "relevant": 1}, "n must be an integer of at least 0, got 3.5"),
        ({"n": 3, "relevant": 1, "labels": [1]}, "pass either labels or n and relevant, got both"),
        ({"n": 3, "relevant": 1, "method": "magic"}, "method must be one of auto, closed, .*, got 'magic'"),
        ({"n": 3, "relevant": 1, "samples": 0}, "samples must be an integer of at least 1, got 0"),
        ({"n": 3, "relevant": 1, "ranker_strength": 1.0}, "ranker_strength must lie between 0 and 1, got 1.0"),
        ({"n": 3, "relevant": 1, "depth": -1}, "depth must be a positive integer or None, got -1"),
        ({"n": 3, "relevant": 1, "grid": 2}, "grid must be an integer of at least 16, got 2"),
        (
            {"n": 3, "relevant": 1, "method": "closed"},
            "method='closed' needs a measure with a closed-form distribution, got nDCG",
        ),
        ({"n": 300, "relevant": 100, "method": "enumeration"}, "enumeration takes up to 5,000,000 arrangements"),
        ({"labels": [1.0, math.nan]}, "labels must be finite numbers, at least one"),
    ],
)
def test_bad_arguments_raise_errors_that_name_them(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        distribution("nDCG", **arguments)  # type: ignore[arg-type]


def test_bounded_measure_has_no_distribution_of_its_own() -> None:
    with pytest.raises(MeasureError, match=r"plain measure, such as nDCG@10, got MM\(nDCG@10\)"):
        distribution("MM(nDCG@10)", n=3, relevant=1)


def test_labels_above_max_rel_are_refused() -> None:
    with pytest.raises(DataError, match="max_rel"):
        distribution("ERR", labels=[5, 0])
