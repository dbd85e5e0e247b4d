"""Ranks alone: of each query, the rank of its one relevant item and the number of candidates.

Link prediction reports its results in this form, and so do other evaluations against sampled or filtered candidates. A
rank between two integers is the realistic rank of an item that ties with others, the middle of the ranks that it can
have; the value is the mean of those at the two ranks next to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data import frames
from rankbound.data.held_out import columns_of
from rankbound.difficulty import difficulty_of
from rankbound.difficulty.bounding import Bounds, get_bounding
from rankbound.difficulty.run_values import RunValues
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.result import Evaluation
from rankbound.lists import Coverage, Lists
from rankbound.measures import LabelCounts, Measure, is_defined
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RANK, _SIZE = "rank", "candidates"
_OTHERS = {*frames.COLUMN_NAMES["docid"], *frames.COLUMN_NAMES["label"]}
_MOST = 10**7  # candidates of a query
_AT_ONCE = 4_000_000  # items of lists that are ranked at once
# measures whose value does not depend on what stands below the only relevant item
_DECIDED_ABOVE = ("nDCG", "DCG", "ERR", "AP", "P", "R", "RR", "Success", "RBP")
_STAND_INS = {"skip": np.nan, "zero": 0.0, "one": 1.0}


def is_rank_table(source: Any) -> bool:
    """Whether a source is a table with the columns rank and candidates, and without documents and labels.

    >>> import polars as pl
    >>> table = pl.DataFrame({"rank": [1], "candidates": [10]})
    >>> is_rank_table(table), is_rank_table(table.with_columns(docid=1)), is_rank_table({})
    (True, False, False)
    """
    if isinstance(source, (str, PathLike)) and not Path(source).is_file():
        return False
    names = set(columns_of(source))
    return {_RANK, _SIZE} <= names and not names & _OTHERS


def evaluate_ranks(
    source: Any, measures: Mapping[str, Measure], protocol: Protocol, *, bounds: bool = False
) -> Evaluation:
    """Evaluate a table of ranks; of the protocol, ``empty`` alone has a meaning for it.

    >>> import polars as pl
    >>> from rankbound.measures import parse_measures
    >>> table = pl.DataFrame({"rank": [1.0, 2.5], "candidates": [10, 4]})
    >>> evaluate_ranks(table, parse_measures(["RR"]), Protocol()).values["RR"].round(4).tolist()
    [1.0, 0.4167]
    """
    others = protocol.changes().keys() - {"empty"}
    if protocol.describe()["candidates"] == Protocol().candidates:  # the rule, which may have been read
        others -= {"candidates"}
    if others:
        raise ArgumentError(f"{', '.join(sorted(others))} must be left out for a table of ranks")
    ids, ranks, sizes = _read(source)
    counts = LabelCounts.binary(sizes, np.ones_like(sizes))
    values, empty, no_choice, bounds_of, complete = {}, {}, {}, {}, {}
    for name, measure in measures.items():
        if measure.is_standardized:
            raise ArgumentError(f"a table of ranks has no reference runs, got {name}")
        plain = measure.plain
        difficulty, defined = difficulty_of(plain, counts), is_defined(counts, plain)
        sides = [_values_at(plain, rank.astype(np.int64), sizes) for rank in (np.floor(ranks), np.ceil(ranks))]
        has_value = defined
        if measure.bounding != "none":
            bounding = get_bounding(measure.bounding)
            sides = [bounding.apply(side, difficulty)[0] for side in sides]
            has_value = defined & bounding.defined(difficulty)
        values[name] = np.where(has_value, (sides[0] + sides[1]) / 2, _STAND_INS[protocol.empty])
        empty[name] = ~defined
        if measure.bounding != "none" or bounds:
            no_choice[name] = defined & ~difficulty.informative
        if measure.bounding == "none" and bounds:
            bounds_of[name] = Bounds(difficulty.worst, difficulty.expected, difficulty.best)
            complete[name] = values[name]
    coverage = Coverage(shared_queries=len(ids)).with_documents(sizes, sizes)
    return Evaluation(
        ids,
        values,
        empty,
        bounds_of,
        replace(coverage, cutoff=1, fractions_at_cutoff=(np.ones(len(ids)),)),
        no_choice=no_choice,
        complete=complete,
        protocol=protocol,
    )


def _values_at(measure: Measure, ranks: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The value of a plain measure where the only relevant item has this rank among so many."""
    lengths = ranks if measure.definition.name in _DECIDED_ABOVE else sizes
    pairs, index = np.unique(np.stack([ranks, lengths], axis=1), axis=0, return_inverse=True)
    parts = np.cumsum(pairs[:, 1]) // _AT_ONCE
    found = [_values_of(measure, *pairs[parts == part].T) for part in np.unique(parts)]
    return np.concatenate(found)[index.ravel()]


def _values_of(measure: Measure, ranks: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    labels = np.zeros(offsets[-1])
    labels[offsets[:-1] + ranks - 1] = 1
    lists = Lists(labels, offsets, -np.arange(offsets[-1], dtype=np.float64))
    return RunValues(lists, Protocol()).plain(measure)


def _read(source: Any) -> tuple[Any, NDArray[np.float64], NDArray[np.int64]]:
    """The names of the queries, by default their rows from 1, with ranks and numbers of candidates."""
    table = frames.as_polars(source)
    where = f"{source}: " if isinstance(source, (str, PathLike)) else ""
    if len(table) == 0:
        raise DataError(f"{where}has no row")
    numbers = {}
    for name in (_RANK, _SIZE):
        column = table[name]
        if not column.dtype.is_numeric() or column.null_count():
            raise DataError(f"{where}column {name!r} must hold a number in every row, got {column.dtype}")
        numbers[name] = column.to_numpy().astype(np.float64)
    ranks, sizes = numbers[_RANK], numbers[_SIZE]
    _check(where, _SIZE, sizes, (sizes >= 1) & (sizes <= _MOST) & (sizes == np.floor(sizes)), f"1, 2, ... {_MOST:,}")
    fits = (ranks >= 1) & (ranks <= sizes) & (2 * ranks == np.floor(2 * ranks))
    _check(where, _RANK, ranks, fits, "1, 1.5, 2, ... up to the number of candidates")
    named = [name for name in frames.COLUMN_NAMES["qid"] if name in table.columns]
    ids = table[named[0]].to_numpy() if named else np.arange(1, len(table) + 1)
    if named and (table[named[0]].null_count() or table[named[0]].n_unique() < len(table)):
        raise DataError(f"{where}column {named[0]!r} must name each query once")
    return ids, ranks, sizes.astype(np.int64)


def _check(where: str, name: str, values: NDArray[np.float64], fits: NDArray[np.bool_], rule: str) -> None:
    wrong = np.flatnonzero(~fits)
    if len(wrong):
        raise DataError(f"{where}{name} must be {rule}, got {values[wrong[0]]:g} in row {wrong[0] + 1}")
