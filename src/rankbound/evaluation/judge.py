"""What to judge next: the documents whose labels do most to decide which of two runs is better.

A comparison of two runs is undecided while the range of its mean difference over the labels of unjudged documents
(`rankbound.difficulty.unknown.differences`) contains 0. A judgment of a document takes its part out of the width of
that range, gain * |w_A - w_B| over the normalizer of its query. Documents are ranked by the sum of these parts over the
undecided comparisons, each part in relation to what is missing until the comparison is decided on either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
    importance, reduction, number = importance_of_documents(effects, open_pairs, *ends[is_open].T)
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
    effects: NDArray[np.float64], pairs: NDArray[np.int64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """For each document: its importance, its part of the width of all ranges, and how many of them depend on it.

    ``effects`` has a row per document and a column per run; ``low`` and ``high`` are the ranges of the undecided
    ``pairs``. The importance weighs each part by 1 / min(high, -low), what is missing until the pair is decided.
    """
    first, second = pairs.reshape(-1, 2).T
    smallest = effects[effects > 0].min(initial=np.inf)
    weight = 1 / np.maximum(np.minimum(high, -low), smallest)
    importance, reduction = np.zeros(len(effects)), np.zeros(len(effects))
    number = np.zeros(len(effects), dtype=np.int64)
    step = max(1, _BLOCK // max(1, len(pairs)))
    for start in range(0, len(effects), step):
        rows = slice(start, start + step)
        parts = np.abs(effects[rows][:, second] - effects[rows][:, first])
        importance[rows], reduction[rows] = parts @ weight, parts.sum(axis=1)
        number[rows] = (parts > 0).sum(axis=1)
    return importance, reduction, number


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
