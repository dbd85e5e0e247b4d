"""Every measure once more, as slowly and plainly as possible: loops over one ranked list, no array in sight.

They share no code with `rankbound.measures` and are what the tests compare it with.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from rankbound.measures.names import Measure, parse_measure

__all__ = ["all_orders", "mean_over_tie_breaks", "value"]


def value(measure: str | Measure, labels: Sequence[float], depth: int | None = None) -> float:
    """The plain measure of one query whose labels come in ranked order; only the first ``depth`` items have a rank.

    >>> value("AP", [0, 1, 1]) == (1 / 2 + 2 / 3) / 2
    True
    """
    measure = parse_measure(measure)
    labels = [max(label, 0) for label in labels]
    return _ORACLES[measure.family](measure, labels, len(labels) if depth is None else depth)


def all_orders(labels: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Every distinct order of the labels; each stands for equally many permutations of the items."""
    return iter(sorted(set(itertools.permutations(labels))))


def mean_over_tie_breaks(measure: str | Measure, labels: Sequence[float], scores: Sequence[float]) -> float:
    """Mean of the measure over all permutations that sort the scores downwards."""
    items = range(len(labels))
    fitting = [
        value(measure, [labels[i] for i in order])
        for order in itertools.permutations(items)
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    return math.fsum(fitting) / len(fitting)


def _seen(measure: Measure, labels: Sequence[float], depth: int) -> int:
    return min(len(labels), depth, measure.cutoff or len(labels))


def _gain(measure: Measure, label: float) -> float:
    return 2**label - 1 if measure["dcg"] == "exp-log2" else label


def _dcg(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return sum(_gain(measure, labels[i]) / math.log2(i + 2) for i in range(_seen(measure, labels, depth)))


def _ndcg(measure: Measure, labels: Sequence[float], depth: int) -> float:
    ideal = _dcg(measure, sorted(labels, reverse=True), len(labels))
    return _dcg(measure, labels, depth) / ideal if ideal else 0.0


def _err(measure: Measure, labels: Sequence[float], depth: int) -> float:
    still_looking, total = 1.0, 0.0
    for i in range(_seen(measure, labels, depth)):
        stop = (2 ** labels[i] - 1) / 2 ** measure.number("max_rel")
        total += still_looking * stop / (i + 1)
        still_looking *= 1 - stop
    return total


def _hits(measure: Measure, labels: Sequence[float], depth: int) -> list[int]:
    return [i + 1 for i in range(_seen(measure, labels, depth)) if labels[i] >= measure.rel]


def _relevant(measure: Measure, labels: Sequence[float]) -> int:
    return sum(label >= measure.rel for label in labels)


def _sp(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return sum(nth / rank for nth, rank in enumerate(_hits(measure, labels, depth), start=1))


def _ap(measure: Measure, labels: Sequence[float], depth: int) -> float:
    relevant = _relevant(measure, labels)
    divisor = {
        "R": relevant,
        "min": min(relevant, measure.cutoff or relevant),
        "k": measure.cutoff or 0,
        "retrieved": len(_hits(measure, labels, depth)),
    }[str(measure["div"])]
    return _sp(measure, labels, depth) / divisor if divisor else 0.0


def _precision(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return len(_hits(measure, labels, depth)) / (measure.cutoff or len(labels))


def _recall(measure: Measure, labels: Sequence[float], depth: int) -> float:
    relevant = _relevant(measure, labels)
    return len(_hits(measure, labels, depth)) / relevant if relevant else 0.0


def _rr(measure: Measure, labels: Sequence[float], depth: int) -> float:
    hits = _hits(measure, labels, depth)
    return 1 / hits[0] if hits else 0.0


def _success(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return float(bool(_hits(measure, labels, depth)))


def _rprec(measure: Measure, labels: Sequence[float], depth: int) -> float:
    relevant = _relevant(measure, labels)
    return sum(rank <= relevant for rank in _hits(measure, labels, depth)) / relevant if relevant else 0.0


def _rbp(measure: Measure, labels: Sequence[float], depth: int) -> float:
    p = measure.number("p")
    if measure.family == "RBP" and measure["gain"] == "graded":
        largest = max(labels)
        gains = [label / largest if largest else 0.0 for label in labels]
    else:
        gains = [float(label >= measure.rel) for label in labels]
    return (1 - p) * sum(gains[i] * p**i for i in range(_seen(measure, labels, depth)))


def _nrbp(measure: Measure, labels: Sequence[float], depth: int) -> float:
    best = _rbp(measure, sorted(labels, reverse=True), len(labels))
    return _rbp(measure, labels, depth) / best if best else 0.0


def _right_order(labels: Sequence[float], depth: int) -> tuple[float, int]:
    """Pairs in the right order (half for two items without rank) and pairs with different labels."""
    right, pairs = 0.0, 0
    for i, j in itertools.combinations(range(len(labels)), 2):
        if labels[i] != labels[j]:
            pairs += 1
            right += 0.5 if i >= depth else labels[i] > labels[j]
    return right, pairs


def _u(measure: Measure, labels: Sequence[float], depth: int) -> float:
    right, pairs = _right_order([label >= measure.rel for label in labels], depth)
    return pairs - right


def _pair_accuracy(measure: Measure, labels: Sequence[float], depth: int) -> float:
    right, pairs = _right_order(labels, depth)
    return right / pairs if pairs else 0.0


def _tau(measure: Measure, labels: Sequence[float], depth: int) -> float:
    right, pairs = _right_order(labels, depth)
    everything = len(labels) * (len(labels) - 1) / 2
    return (2 * right - pairs) / math.sqrt(pairs * everything) if pairs else 0.0


_ORACLES: dict[str, Callable[[Measure, Sequence[float], int], float]] = {
    "nDCG": _ndcg,
    "DCG": _dcg,
    "ERR": _err,
    "AP": _ap,
    "SP": _sp,
    "P": _precision,
    "R": _recall,
    "RR": _rr,
    "Success": _success,
    "Rprec": _rprec,
    "RBP": _rbp,
    "nRBP": _nrbp,
    "U": _u,
    "PairAcc": _pair_accuracy,
    "Tau": _tau,
}
