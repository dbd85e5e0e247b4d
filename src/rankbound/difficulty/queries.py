"""Difficulty of the queries of a data set, weights that follow from it, and types of queries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound.arrays import floats, is_between, names_of
from rankbound.difficulty.bounding import difficulty_of, get_bounding
from rankbound.difficulty.bounds import plain_measure
from rankbound.difficulty.weights import DEFAULT_FORM, LEAST_EFFECTIVE, QueryWeights, shape_weights
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.measures import LabelCounts, Measure

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def difficulty_weights(
    labels: ArrayLike,
    qid: ArrayLike,
    *,
    measure: str | Measure = "nDCG",
    bounding: str = "expectation-max",
    per: str = "query",
    form: str = DEFAULT_FORM,
    cap: float | None = None,
    effective: float | None = LEAST_EFFECTIVE,
    normalize: bool = False,
) -> NDArray[np.float64]:
    """Weights that make any trainer difficulty-aware: from 1/(B-W), 1/E or 1/(B-E) of each query.

    They work in every trainer that accepts query or sample weights (LightGBM, XGBoost, CatBoost, scikit-learn).
    Queries without a choice, on which all rankings have the same value (W = B), get 0. All others get more than 0,
    except that 1/E is 0 where E is 0. A query with a larger 1/(B-E) never gets the smaller weight.

    Without a limit, few queries can decide what is learned: if almost every ranking of a query is nearly the best,
    B - E is close to 0. The default therefore caps the weights so that their effective sample size,
    (sum w)^2 / sum w^2, is at least half of the number of queries with a weight, whatever the labels are.

    Parameters
    ----------
    labels, qid:
        The label and the query of each row; the rows of a query need not be adjacent.
    measure:
        The measure whose W, E and B are used.
    bounding:
        ``"min-max"`` for 1/(B-W), ``"expectation"`` for 1/E, ``"expectation-max"`` for 1/(B-E), ``"none"`` for 1. Do
        not use ``"expectation"`` for tree ensembles: it lowered their nDCG@10 by 0.009 in the mean, significantly on 3
        of 8 data sets, and raised it significantly on none.
    per:
        ``"query"`` returns one weight per query in order of first appearance, ``"row"`` one per row.
    form:
        ``"plain"`` for the weight itself, ``"sqrt"`` for its square root, which is less uneven.
    cap:
        Cut weights at this multiple of the median of the weights that are not 0. None cuts none.
    effective:
        Least effective sample fraction, see `effective_sample_fraction`. Weights above the largest cap that reaches it
        are cut there; it is at least the median for 0.5. None leaves the weights as they are.
    normalize:
        Scale the weights to mean 1 over the queries with a weight, which leaves the trainer's step size as it is.

    Warns
    -----
    WeightWarning
        If the effective sample fraction is below 0.5, which is possible only if ``effective`` is None or below 0.5.
        Weights per row are judged per query.

    Notes
    -----
    An affine bounding of a loss is the loss times the *exact* weight, plus a constant. To train with the bounded loss
    itself, use ``form="plain", effective=None``.

    >>> labels, qid = [1, 0, 1, 1, 1, 0, 0, 0], ["a"] * 2 + ["b"] * 2 + ["c"] * 4
    >>> difficulty_weights(labels, qid, measure="P@1", form="plain").round(3).tolist()
    [2.0, 0.0, 1.333]
    >>> difficulty_weights(labels, qid, measure="P@1", form="sqrt").round(3).tolist()
    [1.414, 0.0, 1.155]
    """
    if per not in ("query", "row"):
        raise ArgumentError(f"per must be 'query' or 'row', got {per!r}")
    qid = names_of("qid", qid)
    result = query_weights(
        labels,
        qid,
        measure=measure,
        bounding=bounding,
        form=form,
        cap=cap,
        effective=effective,
        normalize=normalize,
    )
    result.warn(stacklevel=2)
    return result.weights if per == "query" else result.per_row(qid)


def query_weights(
    labels: ArrayLike,
    qid: ArrayLike,
    *,
    measure: str | Measure = "nDCG",
    bounding: str = "expectation-max",
    form: str = DEFAULT_FORM,
    cap: float | None = None,
    effective: float | None = LEAST_EFFECTIVE,
    normalize: bool = False,
) -> QueryWeights:
    """The weights of `difficulty_weights`, with their effective sample fraction and the queries that were capped.

    No warning is issued; `QueryWeights.warning` has its text.

    >>> labels, qid = [1, 0, 1, 1, 1, 0, 0, 0], ["a"] * 2 + ["b"] * 2 + ["c"] * 4
    >>> query_weights(labels, qid, measure="P@1", form="plain", cap=0.9).summary()
    {'effective_sample_fraction': 0.996..., 'median': 1.416..., 'maximum': 1.5, 'capped': 1}
    """
    lists = Lists.from_qid(labels, names_of("qid", qid))
    raw = _raw_weights(lists, measure, bounding)
    weights, capped = shape_weights(raw, form=form, cap=cap, effective=effective, normalize=normalize)
    return QueryWeights(np.asarray(lists.query_ids), weights, capped)


def _raw_weights(lists: Lists, measure: str | Measure, bounding: str) -> NDArray[np.float64]:
    difficulty = difficulty_of(plain_measure(measure), LabelCounts.from_lists(lists))
    return get_bounding(bounding).weight(difficulty)


def weights_of_parts(
    source: Any,
    *,
    measure: str | Measure = "nDCG",
    bounding: str = "expectation-max",
    form: str = DEFAULT_FORM,
    cap: float | None = None,
    effective: float | None = LEAST_EFFECTIVE,
    normalize: bool = False,
    cluster: Any = None,
    shuffle: bool = True,
    scratch: Any = None,
) -> QueryWeights:
    """`query_weights` of a table in parts with the columns qid and label, such as ``"train-*.parquet"``.

    The queries come in ascending order of their ids, so that the result does not depend on the parts. The table, but
    not the weights, may be larger than memory. ``cluster``, ``shuffle`` and ``scratch`` are those of
    `rankbound.evaluate`.
    """
    from rankbound.data.parts import Tables, divide, open_work

    plain, _ = plain_measure(measure), get_bounding(bounding)  # wrong names are reported before files are read
    with open_work(cluster, scratch) as work:
        table = work.open(source, ("qid", "label"))
        if table.rows == 0:
            raise DataError(f"{table.name}: there are no queries to weight")
        tables, parts, _ = divide(Tables(table, None), shuffle=shuffle, folder=work.folder)
        found = work.results("weighting", partial(_weigh_part, tables.run, str(plain), bounding), parts)
    qids, raw = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.argsort(qids, kind="stable")
    weights, capped = shape_weights(raw[order], form=form, cap=cap, effective=effective, normalize=normalize)
    return QueryWeights(qids[order], weights, capped)


def _weigh_part(table: Any, measure: str, bounding: str, part: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    from rankbound.data.frames import lists_from_frame

    lists = lists_from_frame(table.read(part.run))
    return np.asarray(lists.query_ids), _raw_weights(lists, measure, bounding)


QUERY_TYPES = ("ideal", "informative", "uninformative", "hard", "easy", "below random", "no choice")
MARGIN, IDEAL = 0.1, 0.5  # default thresholds of the gain, see `query_types`
LOW, HIGH = 1 / 3, 2 / 3  # default thresholds of hard and easy queries
_ROUNDING = 1e-9  # relative differences below this are rounding errors of floating-point sums


def query_types(
    value: ArrayLike,
    expected: ArrayLike,
    best: ArrayLike,
    worst: ArrayLike,
    *,
    margin: float = MARGIN,
    ideal: float = IDEAL,
    quota: float | None = None,
    low: float = LOW,
    high: float = HIGH,
    floor: float = 0.0,
) -> NDArray[Any]:
    """Type of each query by what the systems gain over a random ranking of the same candidates.

    ``value`` is what reasonable rankers reach on a query, usually the mean over the systems; ``expected``, ``best`` and
    ``worst`` are its E, B and W. A query with B = W is *no choice*: all rankings of its candidates have the same value.
    The others are classified by the gain g = (value - E) / (B - E), which is 0 for a random ranking in the mean and 1
    for the best ranking:

    =============  =====================================================================
    type           rule
    =============  =====================================================================
    ideal          g >= ``ideal``
    informative    ``margin`` < g < ``ideal``
    uninformative  -``margin`` <= g <= ``margin``, and neither hard nor easy
    hard           the same, and value and E are both below ``low``
    easy           the same, and value and E are both above ``high``
    below random   g < -``margin``
    no choice      B = W
    =============  =====================================================================

    ``low`` and ``high`` are fractions of the way from ``floor``, the lowest value of the measure on any query, to B.
    Where lower values are better (B < W), everything is reversed, and the way starts at W.

    With a ``quota`` the types are those of the source, which ranks the queries: of the queries with a choice, the
    fraction ``quota`` with the largest gaps value - E is ideal, the fraction with the smallest gaps uninformative (or
    hard, or easy), and all others informative; none is below random. ``margin`` and ``ideal`` are not used then.
    Queries with equal gaps have the same type. Where they do not all fit into a quota, the less favorable type wins:
    uninformative before informative, informative before ideal.

    The type of a query depends on nothing but the numbers, not on the order of the queries, and differences that can
    be rounding errors count as equal.

    Source: Karmaker & Feng, Joint upper & lower bound normalization for IR evaluation. They define ideal, informative,
    uninformative, hard and easy queries in words and take 1,000 of 10,000 queries as ideal and as uninformative. The
    thresholds are ours: systems that cover at most a tenth of the way from random to best are close to random, and
    systems that cover at least half of it are closer to the best ranking than to a random one.

    >>> value, expected = [0.9, 0.5, 0.1, 0.95, 0.2, 1.0], [0.2, 0.3, 0.1, 0.95, 0.4, 1.0]
    >>> query_types(value, expected, best=1.0, worst=[0, 0, 0, 0.9, 0, 1]).tolist()
    ['ideal', 'informative', 'hard', 'easy', 'below random', 'no choice']
    >>> query_types(value, expected, best=1.0, worst=[0, 0, 0, 0.9, 0, 1], quota=0.2).tolist()
    ['ideal', 'informative', 'informative', 'informative', 'uninformative', 'no choice']
    """
    _check_thresholds(margin, ideal, quota, low, high)
    value, expected, best, worst = _one_per_query(value=value, expected=expected, best=best, worst=worst)
    if not is_between(floor, -np.inf, np.inf):
        raise ArgumentError(f"floor must be a finite number, got {floor}")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        thresholds = _Thresholds(margin, ideal, quota, low, high, floor)
        return _classify(value, expected, best, worst, thresholds)


class _Thresholds(NamedTuple):
    margin: float
    ideal: float
    quota: float | None
    low: float
    high: float
    floor: float


def _classify(
    value: NDArray[np.float64],
    expected: NDArray[np.float64],
    best: NDArray[np.float64],
    worst: NDArray[np.float64],
    thresholds: _Thresholds,
) -> NDArray[Any]:
    margin, ideal, quota, low, high, floor = thresholds
    upward = np.where(best < worst, -1.0, 1.0)  # the sign that makes higher values better
    size = np.maximum.reduce([np.abs(array) for array in (value, expected, best, worst)])
    gap = upward * (value - expected)
    choice = np.abs(best - worst) > _ROUNDING * size
    types = np.full(len(gap), "informative", dtype="<U13")
    if quota is None:
        best_gap = np.maximum(upward * (best - expected), _ROUNDING * size)
        gain = np.round(np.where(choice, gap / best_gap, 0.0), 9)  # so that rounding does not decide at the thresholds
        near_random = np.abs(gain) <= margin
        types[gain >= ideal] = "ideal"
        types[gain < -margin] = "below random"
    else:
        smallest, largest = _ends(gap[choice], size[choice], quota)
        near_random = np.zeros(len(gap), dtype=bool)
        near_random[choice] = smallest
        types[np.flatnonzero(choice)[largest]] = "ideal"
    types[near_random] = "uninformative"
    start = np.where(best < worst, worst, floor)
    way = upward * (best - start)
    reached = [upward * (array - start) for array in (value, expected)]
    types[near_random & (np.maximum(*reached) < low * way)] = "hard"
    types[near_random & (np.minimum(*reached) > high * way)] = "easy"
    types[~choice] = "no choice"
    return types


def describe_query_types(quota: float | None = None) -> dict[str, str]:
    """A sentence for each of `QUERY_TYPES`: what it means, and the default threshold that decides it.

    ``quota`` selects the rule, as in `query_types`.

    >>> describe_query_types()["no choice"]
    'All rankings of the candidates have the same value, so the query cannot distinguish systems.'
    >>> describe_query_types(quota=0.1)["ideal"]
    'The gap between the mean of the systems and a random ranking is among the largest 10 %.'
    """
    both = "and both the systems and a random ranking score"
    shared = {
        "hard": f"Uninformative, {both} below {LOW:.0%} of the best value.",
        "easy": f"Uninformative, {both} above {HIGH:.0%} of the best value.",
        "no choice": "All rankings of the candidates have the same value, so the query cannot distinguish systems.",
    }
    if quota is None:
        way = "of the way from a random ranking to the best one"
        rules = {
            "ideal": f"On average, the systems cover at least {IDEAL:.0%} {way}.",
            "informative": f"On average, the systems cover more than {MARGIN:.0%} but less than {IDEAL:.0%} {way}.",
            "uninformative": f"On average, the systems stay within {MARGIN:.0%} {way}: they are close to random.",
            "below random": f"On average, the systems are below a random ranking by more than {MARGIN:.0%} {way}.",
        }
    else:
        gap = "The gap between the mean of the systems and a random ranking is"
        rules = {
            "ideal": f"{gap} among the largest {quota:.0%}.",
            "informative": f"{gap} neither among the largest nor among the smallest {quota:.0%}.",
            "uninformative": f"{gap} among the smallest {quota:.0%}.",
        }
    texts = {kind: text.replace("%", " %") for kind, text in (rules | shared).items()}
    return {kind: texts[kind] for kind in QUERY_TYPES if kind in texts}


def query_type_rule(quota: float | None = None) -> str:
    """The rule of `query_types` with its default thresholds in one sentence, for the notes of tables and figures.

    >>> query_type_rule(quota=0.1).partition(":")[0]
    'Types by the gap between the mean of the systems and a random ranking'
    """
    ends = f"hard below {LOW:.0%} and easy above {HIGH:.0%} of the best value".replace("%", " %")
    if quota is None:
        text = (
            "Types by the gain (mean of the systems - E) / (B - E), where E is the expected value of a random ranking "
            f"and B the best value: ideal from {IDEAL:g}, informative above {MARGIN:g}, below random under "
            f"-{MARGIN:g}, uninformative in between ({ends})"
        )
    else:
        text = (
            "Types by the gap between the mean of the systems and a random ranking: ideal and uninformative are the "
            f"{100 * quota:g} % with the largest and the smallest gaps ({ends}), informative all others"
        )
    return f"{text}; no choice where all rankings have the same value"


def _ends(gap: NDArray[np.float64], size: NDArray[np.float64], quota: float) -> tuple[NDArray[np.bool_], ...]:
    """Which queries have the smallest and which the largest gaps; equal ones are together, at the edges downward."""
    order = np.lexsort((size, gap))
    steps = np.diff(gap[order]) > _ROUNDING * np.maximum(size[order][1:], size[order][:-1])
    group = np.concatenate(([0], np.cumsum(steps)))[: len(gap)]
    count = round(quota * len(gap))
    smaller = np.searchsorted(group, group, side="left")  # number of queries with smaller gaps, for each
    at_least = len(gap) - smaller
    smallest, largest = np.zeros((2, len(gap)), dtype=bool)
    smallest[order] = smaller < count
    largest[order] = (at_least <= count) & (smaller >= count)
    return smallest, largest


def _check_thresholds(margin: float, ideal: float, quota: float | None, low: float, high: float) -> None:
    if not is_between(margin, -1e-300, 1):
        raise ArgumentError(f"margin must be at least 0 and less than 1, got {margin}")
    if not is_between(ideal, margin, 1) and ideal != 1:
        raise ArgumentError(f"ideal must be greater than margin ({margin:g}) and at most 1, got {ideal}")
    if quota is not None and (not is_between(quota, 0, 1) or quota > 0.5):
        raise ArgumentError(f"quota must be None, or greater than 0 and at most 0.5, got {quota}")
    if not is_between(low, 0, 1) or not is_between(high, 0, 1) or low > high:
        raise ArgumentError(f"low and high must lie between 0 and 1, low first, got {low} and {high}")


def _one_per_query(**inputs: ArrayLike) -> list[NDArray[np.float64]]:
    """The inputs as arrays of one length; a single number counts for every query."""
    names = " and ".join([", ".join([*inputs][:-1]), [*inputs][-1]])
    arrays = [floats(name, numbers, ndim=None) for name, numbers in inputs.items()]
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = [array.shape for array in arrays]
        raise ArgumentError(f"{names} must have one entry per query, got shapes {shapes}") from None
    if arrays[0].ndim != 1:
        raise ArgumentError(f"{names} must have one number per query, got shape {arrays[0].shape}")
    return arrays
