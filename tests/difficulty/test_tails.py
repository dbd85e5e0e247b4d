"""Tails of distributions: against all orders, and against brackets from a program with totals rounded down and up.

`test_tails_of_the_catalog` has the other oracles, for lists of up to 400 documents.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from rankbound.difficulty.distribution import Distribution, distribution
from rankbound.measures.combinatorics import arrangements
from rankbound.measures.ranked import rank_rows
from rankbound.testing.strategies import catalog

ERROR, LEAST = 0.02, 1e-6  # relative error that is stated, for probabilities of at least this
MEASURES = catalog(range(2, 11, 4))
QUERIES = [
    [1, 0],
    [1, 1, 1, 0],
    [2, 2, 1],
    [2, 1, 0, 0, 0],
    [2, 2, 1, 1, 1, 0],
    [1] * 4 + [0] * 5,
    [2, 2, 1, 1] + [0] * 5,
]


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKBOUND_CACHE", "")


def check_all_orders(measure, labels, method):
    orders = np.array(arrangements(sorted(labels, reverse=True)), dtype=np.float64)
    scores = np.sort(measure.definition.values(measure, rank_rows(orders, len(labels))))
    null = distribution(measure, labels=labels, method=method, cache=False)
    slack = 1e-9 * max(1.0, abs(scores).max())
    at_least = 1 - np.searchsorted(scores, scores - slack) / len(scores)
    at_most = np.searchsorted(scores, scores + slack, side="right") / len(scores)
    np.testing.assert_allclose(null.survival(scores), at_least, rtol=ERROR if method == "dynamic" else 1e-9)
    np.testing.assert_allclose(null.cdf(scores), at_most, rtol=ERROR if method == "dynamic" else 1e-9)
    assert null.survival(scores[-1]) == pytest.approx(at_least[-1], rel=1e-9)
    assert null.cdf(scores[0]) == pytest.approx(at_most[0], rel=1e-9)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_small_lists_equal_all_orders(measure):
    for labels in QUERIES:
        check_all_orders(measure, labels, "auto")
        has_program = measure.definition.has_walk or measure.definition.built_in
        if (
            has_program and measure.definition.name != "infAP"
        ):  # its values lie closer together than the cells of a grid
            check_all_orders(measure, labels, "dynamic")


@pytest.mark.slow
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_all_label_sets_of_up_to_nine_documents(measure):
    for n in range(1, 10):
        for labels in itertools.combinations_with_replacement((2, 1, 0), n):
            check_all_orders(measure, list(labels), "auto")


# ---- long lists ------------------------------------------------------------------------------------------------------


class Form:
    """A measure on one query, with its formula written out: what a document adds, by rank, level and counts above."""

    def __init__(self, name: str, labels: list[int]) -> None:
        base, _, cutoff = name.partition("@")
        kind, _, settings = base.rstrip(")").partition("(")
        self.n, array = len(labels), np.array(labels, dtype=np.float64)
        self.ranks = min(int(cutoff or self.n), self.n)
        self.kind, self.scale = kind, 1.0
        rank = np.arange(1.0, self.ranks + 1)
        self.weights = 1 / rank
        self.gains = (array > 0) * 1.0
        if kind in ("nDCG", "DCG", "LetorNDCG"):
            self.gains = 2**array - 1 if "exp" in settings or kind == "LetorNDCG" else array
            self.weights = 1 / np.maximum(np.log2(rank), 1) if kind == "LetorNDCG" else 1 / np.log2(1 + rank)
            ideal = np.sort(self.gains)[::-1][: self.ranks] @ self.weights
            self.scale = 1.0 if kind == "DCG" else 1 / ideal
        elif kind == "RBP":
            p = float(settings.partition("=")[2] or 0.8)
            self.weights, self.scale = p ** (rank - 1), 1 - p
        elif kind == "AP":
            self.scale = 1 / float(self.gains.sum())
        else:
            assert kind == "ERR"
            self.gains = (2**array - 1) / 16
        levels, counts = np.unique(self.gains, return_counts=True)
        self.levels, self.counts = levels[::-1].tolist(), counts[::-1].tolist()

    def added(self, rank: int, level: int, above: list[int]) -> float:
        """What a document of the level adds at a rank."""
        if self.kind == "AP":
            return (above[0] + 1) / rank if level == 0 else 0.0
        reach = 1.0
        if self.kind == "ERR":
            reach = math.prod((1 - stop) ** count for stop, count in zip(self.levels, above, strict=True))
        return self.levels[level] * self.weights[rank - 1] * reach

    def values(self, orders: np.ndarray) -> np.ndarray:
        """Values of orders of the documents."""
        gains = self.gains[orders][:, : self.ranks]
        if self.kind == "AP":
            return (gains * np.cumsum(gains, axis=1)) @ self.weights * self.scale
        if self.kind == "ERR":
            passed = np.cumprod(1 - gains, axis=1)
            gains[:, 1:] *= passed[:, :-1]
        return gains @ self.weights * self.scale


class Bracket:
    """Bounds of P(X >= x) and P(X <= x): a dynamic program over ranks and counts whose totals are rounded down.

    The true total of an order is at most one step per document with a gain above the rounded one.
    """

    def __init__(self, form: Form, steps: int) -> None:
        self.form = form
        self.step = self._greatest() / steps
        states = {(0,) * (len(form.levels) - 1): np.eye(1, steps + 2)[0]}
        for rank in range(1, form.ranks + 1):
            following: dict[tuple[int, ...], np.ndarray] = {}
            for counts, mass in states.items():
                for reached, moved in self._moves(rank, counts, mass):
                    following[reached] = following[reached] + moved if reached in following else moved
            states = following
        total = np.sum(list(states.values()), axis=0)
        self.above, self.below = np.cumsum(total[::-1])[::-1], np.cumsum(total)
        with_gain = sum(count for gain, count in zip(form.levels, form.counts, strict=True) if gain > 0)
        self.slack = min(with_gain, form.ranks) * self.step

    def _greatest(self) -> float:
        best = self.form.values(np.argsort(-self.form.gains, kind="stable")[None])[0]
        return float(best / self.form.scale)

    def _moves(self, rank, counts, mass) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        form = self.form
        above = [*counts, rank - 1 - sum(counts)]
        for level, (all_, seen) in enumerate(zip(form.counts, above, strict=True)):
            if all_ > seen:
                shift = math.floor(form.added(rank, level, above) / self.step + 1e-9)
                moved = np.zeros_like(mass)
                moved[shift:] = mass[: len(mass) - shift] * ((all_ - seen) / (form.n - rank + 1))
                yield tuple(count + (other == level) for other, count in enumerate(counts)), moved

    def survival(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of P(X >= x)."""
        total = x / self.form.scale
        return self._at(self.above, np.ceil(total * (1 - 1e-11) / self.step)), self._at(
            self.above, np.ceil((total - self.slack) / self.step - 1e-6)
        )

    def cdf(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of P(X <= x)."""
        total = x / self.form.scale
        low = np.floor((total - self.slack) / self.step)
        return np.where(low < 0, 0.0, self._at(self.below, low)), self._at(
            self.below, np.floor(total * (1 + 1e-11) / self.step + 1e-6)
        )

    @staticmethod
    def _at(sums: np.ndarray, index: np.ndarray) -> np.ndarray:
        return sums[np.clip(index.astype(np.int64), 0, len(sums) - 1)]


def attained_values(form: Form, size: int = 1200) -> np.ndarray:
    """Values of orders that range from the worst to the best."""
    rng, parts = np.random.default_rng(1), []
    for strength in (0, 0.5, 1, 2, 3, 5, 9, -0.5, -1, -2, -3, -5):
        keys = strength * form.gains / max(form.levels) + rng.gumbel(size=(size, form.n))
        parts.append(form.values(np.argsort(-keys, axis=1)))
    return np.unique(np.concatenate(parts))


def check_tails(null: Distribution, form: Form, steps: int) -> None:
    """At 20 attained values with probabilities from 1e-6 to 1, in both tails."""
    bracket, x = Bracket(form, steps), attained_values(form)
    for name in ("survival", "cdf"):
        low, high = getattr(bracket, name)(x)
        at = np.unique(np.abs(np.log(np.maximum(low, 1e-300))[:, None] - np.linspace(math.log(LEAST), 0, 20)).argmin(0))
        at = at[low[at] >= LEAST]
        p = getattr(null, name)(x[at])
        assert (p <= high[at] * (1 + ERROR)).all()
        assert (p >= low[at] * (1 - ERROR)).all()


BINARY = [(n, relevant) for n in (30, 100, 400) for relevant in (1, 2, 3, 10, n // 2)]
LONG = [
    (measure, [1] * relevant + [0] * (n - relevant))
    for measure in ("nDCG", "AP", "RBP", "ERR", "AP@20", "LetorNDCG")
    for n, relevant in BINARY
    if relevant <= 3 or (n <= 100 and relevant <= 10) or n == 30
]
LONG += [
    (measure, labels)
    for measure in ("nDCG", "nDCG@10", "nDCG(dcg='exp-log2')@5", "DCG", "ERR@10")
    for labels in ([2] * 3 + [1] * 6 + [0] * 21, [4, 3, 3, 2, 1, 1] + [0] * 20, [2] * 4 + [1] * 8 + [0] * 48)
]


def name_of(part: str | list[int]) -> str:
    return part if isinstance(part, str) else " ".join(f"{part.count(label)}x{label}" for label in sorted(set(part)))


@pytest.mark.parametrize(("measure", "labels"), LONG[::6], ids=name_of)
def test_tails_of_long_lists(measure, labels):
    check_tails(distribution(measure, labels=labels, cache=False), Form(measure, labels), 1 << 13)


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "labels"), LONG, ids=name_of)
def test_tails_of_long_lists_on_a_fine_grid(measure, labels):
    check_tails(distribution(measure, labels=labels, cache=False), Form(measure, labels), 1 << 16)


# ---- one relevant document, few of them, the first of them -----------------------------------------------------------


def test_rbp_of_few_relevant_documents_in_a_long_list():
    n, weights = 300, 0.8 ** np.arange(300)
    reaching = math.comb(n - 1, 2)  # rank 1 is enough
    for first in range(1, n):
        for second in range(first + 1, n):
            if weights[first] + 2 * weights[second] >= 1:
                reaching += int((weights[first] + weights[second] + weights[second + 1 :] >= 1).sum())
    null = distribution("RBP", n=n, relevant=3, cache=False)
    assert null.survival(0.2) == pytest.approx(reaching / math.comb(n, 3), rel=ERROR)


@pytest.mark.parametrize("p", [0.5, 0.8, 0.95])
def test_small_values_of_rbp_are_not_zero(p):
    """With one relevant document at rank r, r of the n ranks are as good or better."""
    null = distribution(f"RBP(p={p})", n=300, relevant=1, cache=False)
    ranks = np.arange(1, 301)
    assert null.survival((1 - p) * p ** (ranks - 1.0)) == pytest.approx(ranks / 300, rel=1e-9)


@pytest.mark.parametrize("relevant", [3, 10, 40])
@pytest.mark.parametrize("p", [0.5, 0.8])
def test_the_first_hit_decides_an_rbp_of_a_long_list(p, relevant):
    """If one of the first r ranks has a hit, X >= (1 - p) p^(r - 1); with p = 1/2 the converse holds, too."""
    null = distribution(f"RBP(p={p})", n=200, relevant=relevant, cache=False)
    for rank in (1, 2, 5, 20, 60):
        first_by = 1 - math.comb(200 - rank, relevant) / math.comb(200, relevant)
        survival = null.survival((1 - p) * p ** (rank - 1.0))
        assert survival >= first_by * (1 - ERROR)
        if p == 0.5:
            assert survival == pytest.approx(first_by, rel=ERROR)


# ---- the best and the worst value ------------------------------------------------------------------------------------


def test_the_best_ndcg_has_its_exact_probability():
    null = distribution("nDCG@10", labels=[2] * 155 + [1] * 67 + [0] * 155, cache=False)
    assert null.survival(1.0) == pytest.approx(math.comb(155, 10) / math.comb(377, 10), rel=1e-9)
    assert null.cdf(0.0) == pytest.approx(math.comb(155, 10) / math.comb(377, 10), rel=1e-9)


@pytest.mark.parametrize("measure", ["nDCG", "AP", "RBP", "RBP(p=0.5)", "ERR", "nDCG@20", "LetorNDCG", "DCG"])
@pytest.mark.parametrize(("n", "relevant"), [(40, 4), (60, 20), (200, 5)])
def test_the_best_order_of_binary_labels(measure, n, relevant):
    null = distribution(measure, n=n, relevant=relevant, cache=False)
    best = 1 / math.comb(n, relevant)
    assert null.survival(null.scores[-1]) == pytest.approx(best, rel=1e-9)
    worst = math.comb(n - 20, relevant) / math.comb(n, relevant) if measure == "nDCG@20" else best
    assert null.cdf(null.scores[0]) == pytest.approx(worst, rel=1e-9)
    form = Form(measure, [1] * relevant + [0] * (n - relevant))
    extremes = form.values(np.stack((np.arange(n)[::-1], np.arange(n))))
    assert [null.scores[0], null.scores[-1]] == pytest.approx(extremes, rel=1e-9)


def test_explicit_dynamic_program_on_two_documents():
    assert distribution("AP", labels=[0, 1], method="dynamic", cache=False).survival(1.0) == pytest.approx(1 / 2)


def test_points_without_mass_are_left_out():
    """The transform of a smooth distribution gives masses of 0 between others."""
    null = distribution("RBP(p=0.98)", n=330, relevant=130, cache=False)
    assert np.isfinite(null.scores).all()
    assert null.mean == pytest.approx((1 - 0.98**330) * 130 / 330, abs=1e-9)
