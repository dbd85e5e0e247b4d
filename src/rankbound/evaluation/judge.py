"""What to judge next: the documents whose labels do most to decide which of two runs is better.

A comparison of two runs is undecided while the range of its mean difference over the labels of unjudged documents
(`rankbound.difficulty.unknown.differences`) contains 0. A judgment of a document takes its part out of the width of
that range, gain * |w_A - w_B| over the normalizer of its query: out of the lower end if its label speaks for B, out of
the upper end if it speaks for A. Documents are ranked by the expected part over the undecided comparisons, in relation
to what is missing until the comparison is decided. How likely a document is relevant follows from the judged ones and
from how many runs return it. This is the greedy idea of minimal test collections (Carterette, Allan & Sitaraman, SIGIR
2006), with ranges that hold for all labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from rankbound.data.frames import id_text
from rankbound.data.sources import to_frame
from rankbound.difficulty.unknown.differences import RunsWithUnknown, have_one_sign
from rankbound.difficulty.unknown.ranges import LabelRange, range_of_mean
from rankbound.errors import ArgumentError, DataError, FileFormatError
from rankbound.evaluation.alignment import lists_on_shared_queries
from rankbound.measures import Measure, parse_measure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import ArrayLike, NDArray

UNKNOWN = "?"
_BLOCK = 4_000_000
_NEWTON_STEPS = 8


@dataclass(frozen=True, slots=True)
class NextJudgment:
    """A document to judge: by how much its label reduces the summed width of the undecided mean differences.

    ``comparisons`` counts the undecided comparisons that depend on it.
    """

    qid: Any
    docid: Any
    reduction: float
    comparisons: int


@dataclass(frozen=True, slots=True)
class JudgmentPlan:
    """The result of `next_judgments`: the documents to judge, the most useful first.

    Of ``comparisons`` pairs of runs, ``decided`` have the same order whatever the labels are. ``width`` is the summed
    width of the others' ranges, of which judging all ``documents`` removes ``reduction``.
    """

    measure: str
    comparisons: int
    decided: int
    width: float
    reduction: float
    documents: tuple[NextJudgment, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return asdict(self) | {"documents": [asdict(document) for document in self.documents]}

    def lines(self) -> str:
        """The documents as judgments of TREC with a question mark in place of the label, to be filled in."""
        return "".join(f"{document.qid} 0 {document.docid} {UNKNOWN}\n" for document in self.documents)


def next_judgments(
    qrels: Any,
    runs: Mapping[str, Any],
    measure: str | Measure = "nDCG@10",
    *,
    budget: int = 50,
    depth: int | None = None,
    grades: ArrayLike | None = None,
) -> JudgmentPlan:
    """The documents whose labels do most to decide the order of the runs, all pairs of them, by a measure.

    Parameters
    ----------
    qrels, runs:
        As in `rankbound.compare`; runs by name.
    measure:
        A plain measure. For additive measures a document's effect is exact for the normalizers of the known labels,
        for others an estimate.
    budget:
        How many documents to return; fewer if fewer matter.
    depth, grades:
        As in `rankbound.difficulty.unknown.label_ranges`.

    >>> qrels = {"q": {"a": 1, "b": 0}}
    >>> runs = {"one": {"q": {"x": 3.0, "a": 2.0}}, "two": {"q": {"a": 3.0, "y": 2.0}}}
    >>> plan = next_judgments(qrels, runs, "P@1", budget=1)
    >>> plan.lines(), plan.decided, plan.comparisons, plan.width, plan.reduction
    ('q 0 x ?\\n', 0, 1, 1.0, 1.0)
    """
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
        raise ArgumentError(f"budget must be a positive integer, got {budget!r}")
    if len(runs) < 2:
        raise ArgumentError(f"runs must be at least two, got {len(runs)}")
    chosen = parse_measure(measure)
    both = RunsWithUnknown(lists_on_shared_queries(qrels, list(runs.values())), depth=depth, grades=grades)
    pairs = list(combinations(range(len(runs)), 2))
    found = both.differences(chosen, pairs)
    ends = np.array(
        [range_of_mean(LabelRange(*row)) for row in zip(found.low, found.high, found.may_be_empty, strict=True)]
    )
    is_open = ~have_one_sign(*ends.T)
    open_pairs = np.array(pairs)[is_open]
    codes, effects = both.effects(chosen)
    effects = effects / both.queries
    probability = _probabilities(both, chosen, codes)
    importance, reduction, number = importance_of_documents(effects, probability, open_pairs, *ends[is_open].T)
    order = np.lexsort((codes, -importance))[: int(budget)]
    order = order[importance[order] > 0]
    return JudgmentPlan(
        str(chosen),
        len(pairs),
        int((~is_open).sum()),
        float((ends[is_open, 1] - ends[is_open, 0]).sum()),
        float(reduction[order].sum()),
        tuple(
            NextJudgment(*both.name_of(int(codes[at])), float(reduction[at]), int(number[at])) for at in order.tolist()
        ),
    )


def importance_of_documents(
    effects: NDArray[np.float64],
    probability: NDArray[np.float64],
    pairs: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """For each document: its importance, its part of the width of all ranges, and how many of them depend on it.

    ``effects`` has a row per document and a column per run, ``probability`` is that of relevance; ``low`` and ``high``
    are the ranges of the undecided ``pairs``. A pair is decided when ``low`` rises above 0 or ``high`` falls below it.
    A relevant document that helps the second run raises ``low``, one that is not relevant lowers ``high``, and so on:
    the importance is the sum over pairs of the expected progress of either end, in relation to what is missing at this
    end and weighted by the probability that the pair is decided there.
    """
    first, second = pairs.reshape(-1, 2).T
    smallest = effects[effects > 0].min(initial=np.inf)
    step = max(1, _BLOCK // max(1, len(first)))
    blocks = [slice(start, start + step) for start in range(0, len(effects), step)]
    mean, variance = low.astype(np.float64), np.full(len(low), np.finfo(float).tiny)
    for rows in blocks:
        delta, p = effects[rows][:, second] - effects[rows][:, first], probability[rows]
        mean += p @ delta - np.minimum(delta, 0).sum(axis=0)
        variance += (p * (1 - p)) @ delta**2
    wins = special.ndtr(mean / np.sqrt(variance))
    to_low, to_high = wins / np.maximum(-low, smallest), (1 - wins) / np.maximum(high, smallest)
    importance, reduction = np.zeros(len(effects)), np.zeros(len(effects))
    number = np.zeros(len(effects), dtype=np.int64)
    for rows in blocks:
        delta, p = effects[rows][:, second] - effects[rows][:, first], probability[rows]
        helps, hurts = np.maximum(delta, 0), np.maximum(-delta, 0)
        importance[rows] = p * (helps @ to_low + hurts @ to_high) + (1 - p) * (hurts @ to_low + helps @ to_high)
        reduction[rows] = (helps + hurts).sum(axis=1)
        number[rows] = (delta != 0).sum(axis=1)
    return importance, reduction, number


def relevance_probabilities(
    pooled: NDArray[np.float64], query: NDArray[np.int64], label: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The probability of each document that it is relevant, from the documents that are judged.

    ``pooled`` is the fraction of runs that return it, ``query`` the number of its query, and ``label`` 1 or 0, or NaN
    where it is not judged. A logistic regression on the logarithm of ``pooled`` with an effect of each query, drawn to
    0 like a normal prior with variance 1; before any judgment the odds of relevance are ``pooled``.

    >>> relevance_probabilities(np.array([1.0, 0.5]), np.array([0, 0]), np.array([np.nan, np.nan])).round(4).tolist()
    [0.5, 0.3333]
    """
    features = np.column_stack((np.ones(len(pooled)), np.log(pooled)))
    prior = np.array([0.0, 1.0])
    common, of_query = prior.copy(), np.zeros(int(query.max(initial=-1)) + 1)
    known = ~np.isnan(label)
    x, y, group = features[known], label[known], query[known]
    for _ in range(_NEWTON_STEPS if known.any() else 0):
        p = special.expit(x @ common + of_query[group])
        spread = p * (1 - p)
        gradient = x.T @ (p - y) + common - prior
        gradient_of_query = np.bincount(group, p - y, minlength=len(of_query)) + of_query
        diagonal = np.bincount(group, spread, minlength=len(of_query)) + 1
        crossed = np.stack([np.bincount(group, spread * column, minlength=len(of_query)) for column in x.T])
        scaled = crossed / diagonal
        left = (x.T * spread) @ x + np.eye(2) - scaled @ crossed.T
        step = np.linalg.solve(left, gradient - scaled @ gradient_of_query)
        common -= step
        of_query -= gradient_of_query / diagonal - step @ scaled
    return np.asarray(special.expit(features @ common + of_query[query]))


def _probabilities(both: RunsWithUnknown, measure: Measure, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probability of relevance of each unknown document, by the judged documents that the runs return."""
    import polars as pl

    known, unknown = [], []
    for lists, ranking, code in zip(both.lists, both.rankings, both.codes, strict=True):
        cut = ranking.depths if measure.cutoff is None else np.minimum(ranking.depths, measure.cutoff)
        is_seen = ranking.above < cut[ranking.query]
        unknown.append(code[is_seen[ranking.unknown]])
        at = np.flatnonzero(is_seen & ~ranking.is_unknown)
        ids, query = pl.Series(np.asarray(lists.ids[ranking.position[at]])), ranking.query[at]
        known.append(pl.DataFrame({"query": query, "id": id_text(ids), "label": ranking.labels[at] >= measure.rel}))
    judged = pl.concat(known).group_by("query", "id", maintain_order=True).agg(pl.len(), pl.col("label").first())
    seen = np.concatenate(unknown)
    returned = np.bincount(np.searchsorted(codes, seen[np.isin(seen, codes)]), minlength=len(codes))
    number = np.concatenate((np.maximum(returned, 1), judged["len"].to_numpy()))
    query = np.concatenate((codes // both.span, judged["query"].to_numpy()))
    label = np.concatenate((np.full(len(codes), np.nan), judged["label"].to_numpy().astype(np.float64)))
    return relevance_probabilities(number / len(both.lists), query, label)[: len(codes)]


# ---- files to fill in ------------------------------------------------------------------------------------------------


def read_filled(path: str | PathLike[str]) -> list[tuple[str, str, float]]:
    """Query, document and label of the lines of a file of judgments to fill in that have a label by now.

    Lines that still have a question mark are left out. FileFormatError for lines of another form.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    result = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) != 4:
            raise FileFormatError(path, number, "a judgment must have 4 fields", f"got {len(parts)}: {line[:80]!r}")
        if parts[3] == UNKNOWN:
            continue
        try:
            label = float(parts[3])
        except ValueError:
            label = np.nan
        if not np.isfinite(label):
            raise FileFormatError(path, number, f"a label must be a number or {UNKNOWN}", f"got {parts[3]!r}")
        result.append((parts[0], parts[2], label))
    return result


def with_judgments(qrels: Any, added: Iterable[Sequence[Any]]) -> pl.DataFrame:
    """Judgments with more of them, (query, document, label) each; DataError for a document that is judged twice."""
    import polars as pl

    frame = to_frame(qrels, "label").select("qid", "docid", "label")
    frame = frame.with_columns(id_text(frame["qid"]), id_text(frame["docid"]), pl.col("label").cast(pl.Float64))
    more = pl.DataFrame(list(added), schema=frame.schema, orient="row")
    every = pl.concat([frame, more])
    twice = every.filter(every.select("qid", "docid").is_duplicated())
    if len(twice):
        raise DataError(f"document {twice['docid'][0]!r} of query {twice['qid'][0]!r} is judged more than once")
    labels = every["label"]
    return every.with_columns(labels.cast(pl.Int64)) if (labels == labels.floor()).all() else every
