"""Reference implementations of all measures: slow and simple loops over one ranked list, without arrays.

They share no code with `rankbound.measures` and are what the tests compare it with.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from rankbound.errors import MeasureError
from rankbound.measures import Measure, parse_measure


def value(measure: str | Measure, labels: Sequence[float], depth: int | None = None) -> float:
    """The plain measure of one query whose labels come in ranked order; only the first ``depth`` items have a rank.

    >>> value("AP", [0, 1, 1]) == (1 / 2 + 2 / 3) / 2
    True
    """
    measure = parse_measure(measure)
    if not measure.definition.reads_negative_labels:
        labels = [max(label, 0) for label in labels]
    if measure.name not in _ORACLES:
        raise MeasureError(
            f"measure must have an oracle, got {measure.name}; add one with oracles.add({measure.name!r}, function)"
        )
    return _ORACLES[measure.name](measure, labels, len(labels) if depth is None else depth)


def add(name: str, oracle: Callable[[Measure, Sequence[float], int], float]) -> None:
    """Let the tests of the catalog cover a measure of your own: ``oracle(measure, labels in ranked order, depth)``."""
    _ORACLES[name] = oracle


def remove(name: str) -> None:
    """Remove an oracle again."""
    del _ORACLES[name]


def all_orders(labels: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Every distinct order of the labels; each stands for equally many permutations of the items."""
    return iter(sorted(set(itertools.permutations(labels))))


def mean_over_tie_breaks(
    measure: str | Measure, labels: Sequence[float], scores: Sequence[float], depth: int | None = None
) -> float:
    """Mean of the measure over all permutations that sort the scores in descending order.

    A wrapped measure is normalized in each of these orders, by the values of all orders of the labels.
    """
    measure = parse_measure(measure)
    normalize = _normalization(measure, labels, len(labels) if depth is None else depth)
    blocks = [
        [label for label, other in zip(labels, scores, strict=True) if other == score]
        for score in sorted(set(scores), reverse=True)
    ]
    fitting = [
        normalize(value(measure.plain, [label for block in orders for label in block], depth))
        for orders in itertools.product(*(all_orders(block) for block in blocks))
    ]
    return math.fsum(fitting) / len(fitting)


@lru_cache(maxsize=64)
def _values_of_all_orders(measure: Measure, labels: tuple[float, ...], depth: int) -> tuple[float, ...]:
    return tuple(value(measure, order, depth) for order in all_orders(labels))


def _normalization(measure: Measure, labels: Sequence[float], depth: int) -> Callable[[float], float]:
    """What a wrapper does to a value of this query: NaN where it is not defined."""
    if measure.bounding == "none":
        return float
    lowest = measure.definition.lowest_label
    everything = _values_of_all_orders(measure.plain, tuple(sorted(max(label, lowest) for label in labels)), depth)
    expected, least, greatest = math.fsum(everything) / len(everything), min(everything), max(everything)
    deviation = math.sqrt(math.fsum((x - expected) ** 2 for x in everything) / len(everything))
    lower_is_better = measure.definition.lower_is_better
    worst, best = (greatest, least) if lower_is_better else (least, greatest)

    def fraction_no_better(x: float) -> float:
        no_better = [other >= x - 1e-9 if lower_is_better else other <= x + 1e-9 for other in everything]
        return sum(no_better) / len(everything)

    def ul2(x: float) -> float:
        if lower_is_better:
            return (expected - x) / (expected - best) if x <= expected else (expected - x) / (worst - expected)
        if x >= expected:
            return (x - expected) / (best - expected)
        return (x - expected) / (expected - measure.definition.floor)

    def ul2_centered(x: float) -> float:
        mean = math.fsum(map(ul2, everything)) / len(everything)
        return (ul2(x) - mean) / (1 - mean)

    formulas: dict[str, Callable[[float], float]] = {
        "min-max": lambda x: (x - worst) / (best - worst),
        "expectation": lambda x: x / expected,
        "expectation-max": lambda x: (x - expected) / (best - expected),
        "z-score": lambda x: (x - expected) / (-deviation if lower_is_better else deviation),
        "distribution": fraction_no_better,
        "UL1": lambda x: x / best * x / (x + expected) if x + expected else 0.0,
        "UL2": ul2,
        "UL2-centered": ul2_centered,
    }
    defined = {"expectation": expected != 0, "UL1": best > 0}.get(measure.bounding, greatest - least > 1e-12)
    return formulas[measure.bounding] if defined else lambda _: math.nan


def _seen(measure: Measure, labels: Sequence[float], depth: int) -> int:
    return min(len(labels), depth, measure.cutoff or len(labels))


def _gain(measure: Measure, label: float) -> float:
    return 2**label - 1 if measure["dcg"] == "exp-log2" else label


def _dcg(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return sum(_gain(measure, labels[i]) / math.log2(i + 2) for i in range(_seen(measure, labels, depth)))


def _ndcg(measure: Measure, labels: Sequence[float], depth: int) -> float:
    ideal = _dcg(measure, sorted(labels, reverse=True), len(labels))
    return _dcg(measure, labels, depth) / ideal if ideal else 0.0


def _letor_ndcg(measure: Measure, labels: Sequence[float], depth: int) -> float:
    def dcg(ranked: Sequence[float], seen: int) -> float:
        return sum(
            (2**label - 1) / (1 if rank <= 2 else math.log2(rank)) for rank, label in enumerate(ranked[:seen], 1)
        )

    ideal = dcg(sorted(labels, reverse=True), _seen(measure, labels, len(labels)))
    return dcg(labels, _seen(measure, labels, depth)) / ideal if ideal else 0.0


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
    last = math.floor(measure.number("mult") * _relevant(measure, labels) + 0.9)
    return sum(rank <= last for rank in _hits(measure, labels, depth)) / last if last else 0.0


def _bpref(measure: Measure, labels: Sequence[float], depth: int) -> float:
    relevant = _relevant(measure, labels)
    limit = min(relevant, sum(0 <= label < measure.rel for label in labels))
    total, above = 0.0, 0
    for label in labels[:depth]:
        if label >= measure.rel:
            total += 1 - min(above, relevant) / limit if above else 1
        elif label >= 0:
            above += 1
    return total / relevant if relevant else 0.0


def _inferred_ap(measure: Measure, labels: Sequence[float], depth: int) -> float:
    epsilon, total, hits, sampled = 0.00001, 0.0, 0, 0
    for i in range(min(depth, len(labels))):
        if labels[i] >= measure.rel:
            rank = i + 1
            inferred = (hits + epsilon) / (sampled + 2 * epsilon)
            total += 1 / rank + i / rank * inferred if i else 1.0
            hits += 1
        sampled += labels[i] >= 0
    relevant = _relevant(measure, labels)
    return total / relevant if relevant else 0.0


def _interpolated_precision(measure: Measure, labels: Sequence[float], depth: int) -> float:
    needed = int(measure.number("recall") * _relevant(measure, labels) + 0.9)
    points = [nth / rank for nth, rank in enumerate(_hits(measure, labels, depth), start=1) if nth >= needed]
    return max(points, default=0.0)


def _returned(measure: Measure, labels: Sequence[float], depth: int) -> int:
    return min(depth, len(labels)) if measure.cutoff is None else measure.cutoff


def _set_precision(measure: Measure, labels: Sequence[float], depth: int) -> float:
    returned = _returned(measure, labels, depth)
    return len(_hits(measure, labels, depth)) / returned if returned else 0.0


def _set_f(measure: Measure, labels: Sequence[float], depth: int) -> float:
    p, r, beta = _set_precision(measure, labels, depth), _recall(measure, labels, depth), measure.number("beta")
    return (beta + 1) * p * r / (r + beta * p) if p and r else 0.0


def _judged(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return float(_seen(measure, labels, depth) > 0)


def _num_ret(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return float(len(_hits(measure, labels, depth)))


def _num_rel(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return float(_relevant(measure, labels))


def _num_q(measure: Measure, labels: Sequence[float], depth: int) -> float:
    return 1.0


def _rbp(measure: Measure, labels: Sequence[float], depth: int) -> float:
    p = measure.number("p")
    if measure.name == "RBP" and measure["gain"] == "graded":
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
    "LetorNDCG": _letor_ndcg,
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
    "Bpref": _bpref,
    "infAP": _inferred_ap,
    "IPrec": _interpolated_precision,
    "SetP": _set_precision,
    "SetR": _recall,
    "SetF": _set_f,
    "Judged": _judged,
    "NumRet": _num_ret,
    "NumRel": _num_rel,
    "NumQ": _num_q,
}
