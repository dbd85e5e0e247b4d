"""Tails of the distribution of every measure on up to 400 documents, at 20 and more values in both tails.

Four oracles, none of which shares code with what it checks:

- counts of relevant documents among the first ranks, and the rank of the first one: exact fractions,
- pairs in the wrong order: the coefficients of the Gaussian multinomial as exact integers,
- interpolated precision: paths below a line, counted as exact integers,
- all others: formulas written out, on orders that are drawn with a preference for high or for low values and weighted.
  The standard error of such a probability is at most 1.2 % of it; three of them are added to the 2 % that are stated.

`test_tails` has brackets that are certain, for measures whose totals can be rounded down, and all
orders of short lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from rankbound.difficulty.distribution import Distribution, distribution
from rankbound.measures import Measure, definitions, parse_measure

ERROR, LEAST = 0.02, 1e-6  # relative error that is stated, for probabilities of at least this
SHAPES = [(20, 380), (200, 200), (390, 10), (3, 147), (4, 36)]  # documents of each level, the highest first
GRADED = [(20, 60, 320), (20, 40, 60, 80, 200), (5, 20, 125), (2, 4, 6, 8, 20)]


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKBOUND_CACHE", "")


def labels_of(counts: tuple[int, ...]) -> list[int]:
    return [len(counts) - 1 - level for level, count in enumerate(counts) for _ in range(count)]


def at_quantiles(x: np.ndarray, tail: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """20 of the values whose tails are spread evenly in logarithms from the least probability to 1, and their tails."""
    logs = np.log(np.maximum(np.array(tail), 1e-300))
    chosen = np.unique(np.abs(logs[:, None] - np.linspace(math.log(LEAST), 0, 20)).argmin(axis=0))
    chosen = chosen[logs[chosen] >= math.log(LEAST)]
    return x[chosen], np.array(tail)[chosen]


def check_exact(null: Distribution, values: list[float], orders: list[int], rtol: float = 1e-9) -> None:
    """``orders[i]`` orders have the ascending ``values[i]``; the ends are exact, however rare they are."""
    total, x = sum(orders), np.array(values)
    at_least = [float(Fraction(sum(orders[i:]), total)) for i in range(len(orders))]
    at_most = [float(Fraction(sum(orders[: i + 1]), total)) for i in range(len(orders))]
    for tails, found in ((at_least, null.survival), (at_most, null.cdf)):
        some, expected = at_quantiles(x, tails)
        np.testing.assert_allclose(found(some), expected, rtol=rtol)
    assert null.survival(x[-1]) == pytest.approx(at_least[-1], rel=1e-9)
    assert null.cdf(x[0]) == pytest.approx(at_most[0], rel=1e-9)


# ---- counts among the first ranks ------------------------------------------------------------------------------------

BY_HITS: dict[str, Callable[[int, int, int, int], float]] = {  # hits, ranks, relevant documents, documents -> value
    "P@{k}": lambda i, k, r, n: i / k,
    "R@{k}": lambda i, k, r, n: i / r,
    "Success@{k}": lambda i, k, r, n: float(i > 0),
    "SetP@{k}": lambda i, k, r, n: i / k,
    "SetR@{k}": lambda i, k, r, n: i / r,
    "SetF@{k}": lambda i, k, r, n: 2 * i / (k + r),
    "SetF(beta=2)@{k}": lambda i, k, r, n: 3 * (i / k) * (i / r) / (i / r + 2 * i / k) if i else 0.0,
    "NumRet(rel=1)@{k}": lambda i, k, r, n: float(i),
    "Rprec": lambda i, k, r, n: i / r,
    "Rprec(mult=0.5)": lambda i, k, r, n: i / math.floor(0.5 * r + 0.9),
}


@pytest.mark.parametrize("counts", SHAPES, ids=str)
def test_hits_among_the_first_ranks(counts):
    relevant, others = counts
    n = relevant + others
    for form, value in BY_HITS.items():
        for k in {"Rprec": (relevant,), "Rprec(mult=0.5)": (math.floor(0.5 * relevant + 0.9),)}.get(form, (1, 10, 33)):
            hits = range(max(0, k - others), min(k, relevant) + 1)
            orders: dict[float, int] = {}
            for i in hits:
                x = value(i, k, relevant, n)
                orders[x] = orders.get(x, 0) + math.comb(k, i) * math.comb(n - k, relevant - i)
            null = distribution(form.format(k=k), labels=labels_of(counts), cache=False)
            assert null.scores == pytest.approx(list(orders), abs=1e-12)
            check_exact(null, list(orders), list(orders.values()))


@pytest.mark.parametrize("counts", SHAPES, ids=str)
@pytest.mark.parametrize("cutoff", [None, 1, 10])
def test_rank_of_the_first_hit(counts, cutoff):
    relevant, n = counts[0], sum(counts)
    last = min(cutoff or n, n - relevant + 1)
    orders = [math.comb(n - rank, relevant - 1) for rank in range(last, 0, -1)]
    values = [1 / rank for rank in range(last, 0, -1)]
    if n - relevant >= (cutoff or n + 1):
        values, orders = [0.0, *values], [math.comb(n - last, relevant), *orders]
    null = distribution("RR" + (f"@{cutoff}" if cutoff else ""), labels=labels_of(counts), cache=False)
    check_exact(null, values, orders)


# ---- pairs -----------------------------------------------------------------------------------------------------------


def orders_by_wrong_pairs(counts: tuple[int, ...]) -> list[int]:
    """How many distinct orders have 0, 1, ... pairs in the wrong order: coefficients of prod (1 - q^a) / (1 - q^j)."""
    pairs = (sum(counts) ** 2 - sum(count * count for count in counts)) // 2
    row = np.zeros(pairs + 1, dtype=object)
    row[0] = 1
    before = counts[0]
    for count in counts[1:]:
        for j in range(1, count + 1):
            row[before + j :] -= row[: pairs + 1 - before - j].copy()
            padded = np.zeros(-(-(pairs + 1) // j) * j, dtype=object)
            padded[: pairs + 1] = row
            row = np.cumsum(padded.reshape(-1, j), axis=0).ravel()[: pairs + 1]
        before += count
    return row.tolist()


@pytest.mark.parametrize("counts", [(10, 90), (3, 147), (4, 36), (3, 10, 30)], ids=str)
@pytest.mark.full("takes seconds")
def test_wrong_pairs(counts):
    check_wrong_pairs(counts)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(200, 200), (20, 380), (20, 60, 320), (20, 40, 60, 80, 200)], ids=str)
def test_wrong_pairs_of_long_lists(counts):
    check_wrong_pairs(counts)


def check_wrong_pairs(counts: tuple[int, ...]) -> None:
    orders, n = orders_by_wrong_pairs(counts), sum(counts)
    assert sum(orders) == math.factorial(n) // math.prod(math.factorial(count) for count in counts)
    pairs, labels = len(orders) - 1, labels_of(counts)
    check_exact(distribution("PairAcc", labels=labels, cache=False), [u / pairs for u in range(pairs + 1)], orders)
    every = n * (n - 1) / 2
    tau = [(2 * u - pairs) / math.sqrt(pairs * every) for u in range(pairs + 1)]
    check_exact(distribution("Tau", labels=labels, cache=False), tau, orders)
    if len(counts) == 2:
        check_exact(distribution("U", labels=labels, cache=False), [float(u) for u in range(pairs + 1)], orders)


# ---- interpolated precision ------------------------------------------------------------------------------------------


def orders_below(n: int, relevant: int, needed: int, value: Fraction) -> int:
    """How many sets of ranks keep precision below the value at each relevant document from the ``needed``-th on."""
    paths = [1] + [0] * relevant
    for rank in range(1, n + 1):
        for hits in range(min(rank, relevant), 0, -1):
            if hits < needed or Fraction(hits, rank) < value:
                paths[hits] += paths[hits - 1]
        # a path may stop at any rank: the rest are documents that are not relevant
    return paths[relevant]


@pytest.mark.parametrize("recall", ["0", "0.3", "1"])
@pytest.mark.parametrize(("relevant", "others"), [(20, 380), (60, 60), (4, 36), (60, 5)])
@pytest.mark.full("takes seconds")
def test_interpolated_precision(recall, relevant, others):
    n = relevant + others
    null = distribution(f"IPrec@{recall}", labels=labels_of((relevant, others)), cache=False)
    needed = max(1, math.floor(float(recall) * relevant + 0.9))
    for quantile in np.geomspace(1e-6, 0.5, 10):
        for at in (quantile, 1 - quantile):
            x = Fraction(null.quantile(at)).limit_denominator(n)
            below = Fraction(orders_below(n, relevant, needed, x), math.comb(n, relevant))
            if 1 - below >= LEAST:
                assert null.survival(float(x)) == pytest.approx(float(1 - below), rel=ERROR)
            above = Fraction(orders_below(n, relevant, needed, x + Fraction(1, 10 * n * n)), math.comb(n, relevant))
            if above >= LEAST:
                assert null.cdf(float(x)) == pytest.approx(float(above), rel=ERROR)
    best = 1 - Fraction(orders_below(n, relevant, needed, Fraction(1)), math.comb(n, relevant))
    assert null.survival(1.0) == pytest.approx(float(best), rel=1e-9)


# ---- all others ------------------------------------------------------------------------------------------------------


class Formula(NamedTuple):
    """A measure written out: gain of labels, how strongly the value depends on each rank, and values of orders.

    The dependence decides how orders are drawn, so that it need not be exact; values are of labels in ranked order.
    """

    ranks: int
    gain: Callable[[np.ndarray], np.ndarray]
    dependence: np.ndarray
    values: Callable[[np.ndarray], np.ndarray]


def later(each: np.ndarray) -> np.ndarray:
    """Sums over the ranks after each rank."""
    return np.append(np.cumsum(each[::-1])[-2::-1], 0.0)


def additive(measure: Measure, labels: np.ndarray, rank: np.ndarray) -> Formula:
    scale, weights, gain = 1.0, 1 / np.log2(1 + rank), lambda x: x * 1.0
    if measure.name in ("RBP", "nRBP"):
        p, greatest = measure.number("p"), labels.max()
        is_graded = measure.name == "RBP" and measure["gain"] == "graded"
        weights, gain = (1 - p) * p ** (rank - 1), (lambda x: x / greatest) if is_graded else (lambda x: (x > 0) * 1.0)
    elif measure.name == "LetorNDCG" or measure["dcg"] == "exp-log2":
        gain = lambda x: 2.0**x - 1  # noqa: E731
        weights = 1 / np.maximum(np.log2(rank), 1) if measure.name == "LetorNDCG" else weights
    if measure.name in ("nDCG", "LetorNDCG", "nRBP"):
        scale = 1 / float(np.sort(gain(labels))[::-1][: len(rank)] @ weights)
    return Formula(len(rank), gain, weights * scale, lambda x: gain(x) @ weights * scale)


def precision_sum(measure: Measure, labels: np.ndarray, rank: np.ndarray) -> Formula:
    def hit(x: np.ndarray) -> np.ndarray:
        return (x >= measure.rel) * 1.0

    relevant, k = float(hit(labels).sum()), measure.cutoff
    fraction = relevant / len(labels)
    dependence = (fraction * (rank - 1) + 1) / rank + fraction * later(1 / rank)

    def values(x: np.ndarray) -> np.ndarray:
        hits = hit(x)
        if measure.name == "infAP":
            inferred = (np.cumsum(hits, axis=1) - hits + 1e-5) / (rank - 1 + 2e-5)
            added = 1 / rank + (rank - 1) / rank * inferred
            added[:, 0] = 1.0
            return (hits * added).sum(axis=1) / relevant
        total = (hits * np.cumsum(hits, axis=1)) @ (1 / rank)
        if measure.name == "SP":
            return total
        retrieved = np.maximum(hits.sum(axis=1), 1)
        return (
            total / {"R": relevant, "min": min(relevant, k or relevant), "k": k, "retrieved": retrieved}[measure["div"]]
        )

    return Formula(len(rank), hit, dependence / (1.0 if measure.name == "SP" else relevant), values)


def cascade(measure: Measure, labels: np.ndarray, rank: np.ndarray) -> Formula:
    def stop(x: np.ndarray) -> np.ndarray:
        return (2.0**x - 1) / 2 ** measure.number("max_rel")

    def values(x: np.ndarray) -> np.ndarray:
        stops = stop(x)
        reach = np.cumprod(1 - stops, axis=1)
        stops[:, 1:] *= reach[:, :-1]
        return stops @ (1 / rank)

    mean = float(stop(labels).mean())
    reach = (1 - mean) ** (rank - 1) / rank
    return Formula(len(rank), stop, reach - later(reach * mean) / (1 - mean), values)


def preferences(measure: Measure, labels: np.ndarray, rank: np.ndarray) -> Formula:
    relevant = float((labels > 0).sum())
    others = len(labels) - relevant
    limit = min(relevant, others)
    above = (rank - 1) * others / (len(labels) - 1)
    moved = np.where(above < relevant, relevant / len(labels) / limit, 0.0)

    def values(x: np.ndarray) -> np.ndarray:
        hits = (x > 0) * 1.0
        return (hits * (1 - np.minimum(np.cumsum(1 - hits, axis=1), relevant) / limit)).sum(axis=1) / relevant

    return Formula(
        len(rank), lambda x: (x > 0) * 1.0, (1 - np.minimum(above, relevant) / limit + later(moved)) / relevant, values
    )


FAMILIES = {
    **dict.fromkeys(("nDCG", "DCG", "LetorNDCG", "RBP", "nRBP"), additive),
    **dict.fromkeys(("AP", "SP", "infAP"), precision_sum),
    "ERR": cascade,
    "Bpref": preferences,
}


def drawn(
    formula: Formula, counts: tuple[int, ...], tilt: float, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Values of some orders, and the ratios of their probabilities to those that they were drawn with."""
    n, levels = sum(counts), np.arange(len(counts) - 1, -1, -1.0)
    dependence = np.zeros(n)
    dependence[: formula.ranks] = formula.dependence
    ahead = np.append(later(dependence)[:-1] / np.arange(n - 1, 0, -1), 0.0)
    left = np.tile(np.array(counts, dtype=float)[:, None], size)
    orders, ratio, each = np.empty((size, formula.ranks)), np.ones(size), np.arange(size)
    for rank in range(formula.ranks):
        factor = np.exp(tilt * formula.gain(levels) * (dependence[rank] - ahead[rank]))
        sums = np.cumsum(left * factor[:, None], axis=0)
        level = (sums[:-1] <= rng.random(size) * sums[-1]).sum(axis=0)
        ratio *= sums[-1] / ((n - rank) * factor[level])
        left[level, each] -= 1
        orders[:, rank] = levels[level]
    return formula.values(orders), ratio


def check_by_importance_sampling(
    name: str, counts: tuple[int, ...], tilts: tuple[float, ...] = (0.7, 1.5, 2.3, 3.0, 3.7, 4.4), size: int = 40_000
) -> None:
    """At three quantiles of the orders of each tilt, which is given in standard deviations, to both sides."""
    measure, labels, rng = parse_measure(name), labels_of(counts), np.random.default_rng(1)
    null = distribution(name, labels=labels, cache=False)
    rank = np.arange(1.0, min(measure.cutoff or len(labels), len(labels)) + 1)
    formula = FAMILIES[measure.name](measure, np.array(labels, dtype=float), rank)
    points = 0
    for tilt in (*tilts, *(-tilt for tilt in tilts)):
        parts = [drawn(formula, counts, tilt / null.std, 10_000, rng) for _ in range(size // 10_000)]
        values, ratio = (np.concatenate(part) for part in zip(*parts, strict=True))
        for x in np.unique(np.quantile(values, (0.2, 0.5, 0.8), method="nearest")):
            slack = 1e-9 * abs(x)
            hits = ratio * ((values >= x - slack) if tilt > 0 else (values <= x + slack))
            p = hits.mean()
            error = hits.std() / math.sqrt(size) / p
            if p < LEAST or error > 0.012:
                continue
            points += 1
            assert (null.survival if tilt > 0 else null.cdf)(x) == pytest.approx(p, rel=ERROR + 3 * error), (x, p)
    assert points >= 2 * len(tilts)


SAMPLED = [
    "nDCG", "nDCG(dcg='exp-log2')", "nDCG@10", "nDCG(dcg='exp-log2')@10", "DCG", "DCG@6", "LetorNDCG", "LetorNDCG@10",
    "ERR", "ERR@10", "ERR@40", "AP", "AP(rel=2)", "AP(div='retrieved')@10", "AP(div='min')@10", "AP(div='k')@10",
    "AP@50", "SP", "SP@10", "RBP", "RBP(gain='graded')", "RBP(p=0.95)", "RBP(gain='graded')@10", "nRBP", "nRBP@20",
    "Bpref", "infAP", "nDCG@50",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("counts", [*SHAPES, *GRADED], ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_tails_against_importance_sampling(name, counts):
    if "rel=2" not in name or len(counts) > 2:
        check_by_importance_sampling(name, counts)


@pytest.mark.parametrize("name", ["nDCG", "ERR", "AP", "Bpref", "RBP(gain='graded')@10"])
@pytest.mark.full("takes seconds")
def test_tails_of_forty_graded_documents(name):
    check_by_importance_sampling(name, (2, 4, 6, 8, 20))


@pytest.mark.parametrize(
    ("name", "counts", "tilts"),
    [
        ("nDCG", (40, 80, 120, 160), (4.5, 7.0)),
        ("nDCG(dcg='exp-log2')", (21, 62, 97, 220), (2.5, 3.5)),
        ("nDCG", (9, 31, 290), (2.0, 7.0)),
        ("DCG", (3, 60, 130, 207), (1.0, 3.5)),
        ("RBP(p=0.98)", (130, 200), (3.0,)),
        ("nDCG", (121, 121), (1.0, 5.0)),
    ],
    ids=str,
)
@pytest.mark.full("takes seconds")
def test_tails_of_four_hundred_documents(name, counts, tilts):
    check_by_importance_sampling(name, counts, tilts)


def test_tails_of_graded_labels():
    check_by_importance_sampling("nDCG", (15, 20, 45), (4.0,), 20_000)
    check_by_importance_sampling("ERR@10", (5, 10, 35), (2.0,), 20_000)


def test_every_measure_has_an_oracle():
    constant = {"Judged", "NumRel", "NumQ"}  # all orders of judged documents have the same value
    exact = {form.partition("@")[0].partition("(")[0] for form in BY_HITS} | {"RR", "U", "PairAcc", "Tau", "IPrec"}
    assert {definition.name for definition in definitions() if definition.built_in} == {*FAMILIES, *exact, *constant}
    assert {parse_measure(name).name for name in SAMPLED} == set(FAMILIES)
