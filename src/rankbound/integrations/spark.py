"""Spark: evaluate the judgments and the run of Spark DataFrames where their partitions are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from rankbound.data.frames import find_columns
from rankbound.difficulty.bounding import Bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import Evaluation, merge_evaluations
from rankbound.evaluation.large import Settings, evaluate_frames, sort_queries
from rankbound.evaluation.lists import requested_measures
from rankbound.evaluation.references import references_of
from rankbound.lists import Coverage
from rankbound.packages import check_packages
from rankbound.protocol import CANDIDATES, Protocol, ProtocolFields, as_protocol

if TYPE_CHECKING:
    import polars as pl

_SIDES = ("worst", "expected", "best")


def evaluate_spark(
    qrels: Any,
    run: Any = None,
    measures: Any = None,
    protocol: Protocol | None = None,
    *,
    bounds: bool = False,
    partitions: int | None = None,
    **fields_of_protocol: Unpack[ProtocolFields],
) -> Evaluation:
    """Evaluate Spark DataFrames: the numbers of `rankbound.evaluate` to the last bit, whatever the partitions.

    The rows are divided by query (``repartition``), the executors evaluate whole queries (``mapInArrow``), and the
    values of the queries are put together here, in ascending order of their ids, which are text. The executors need
    rankbound and pyarrow.

    Parameters
    ----------
    qrels, run:
        Spark DataFrames with the columns ``qid, docid, label`` and ``qid, docid, score``; or one with ``qid, label,
        score`` and no run.
    measures, protocol, bounds, fields_of_protocol:
        As in `rankbound.evaluate`; candidates are "judged" or "returned", and there are no references.
    partitions:
        Partitions to divide the queries into; by default ``spark.sql.shuffle.partitions``. A partition must fit into
        the memory of an executor: about a million rows are a good size.
    """
    check_packages("this integration", "pyspark", "pyarrow", "pandas")
    protocol = as_protocol(protocol, fields_of_protocol)
    if protocol.candidates not in CANDIDATES:
        raise ArgumentError(
            f"candidates must be 'judged' or 'returned' for Spark DataFrames, got {protocol.candidates!r}"
        )
    settings = Settings(requested_measures(measures), protocol, bounds)
    references_of(None, settings.measures, protocol)  # refuses standardized measures, whose references are not here
    table = _scored(qrels) if run is None else _united(qrels, run)
    divided = table.repartition(*(() if partitions is None else (partitions,)), "qid")
    rows = divided.mapInArrow(_partition_function(settings, run is not None), "state string").collect()
    result = merge_evaluations([_read_state(row["state"]) for row in rows])
    if result.coverage.shared_queries == 0:
        raise DataError("there are no queries to evaluate: judgments and run have none in common, or no rows")
    return replace(sort_queries(result), policy=protocol.describe(), protocol=protocol)


def _selected(table: Any, required: tuple[str, ...]) -> Any:
    """The columns of a DataFrame under rankbound's names; ids as text, numbers as float64."""
    from pyspark.sql import functions

    theirs = find_columns(list(table.columns), {}, required=required)
    kinds = {"label": "double", "score": "double"}
    return table.select(*(functions.col(f"`{theirs[name]}`").cast(kinds.get(name, "string")).alias(name)
                          for name in required))  # fmt: skip


def _scored(table: Any) -> Any:
    return _selected(table, ("qid", "label", "score"))


def _united(qrels: Any, run: Any) -> Any:
    """Both tables as one, in which the judgments have a label and the run has a score."""
    judged = _selected(qrels, ("qid", "docid", "label"))
    return judged.unionByName(_selected(run, ("qid", "docid", "score")), allowMissingColumns=True)


def _partition_function(settings: Settings, united: bool) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that executors call for the batches of a partition, which holds whole queries."""

    def evaluate_partition(batches: Iterator[Any]) -> Iterator[Any]:
        import polars as pl
        import pyarrow as pa

        frames = [pl.DataFrame(pa.Table.from_batches([batch])) for batch in batches]
        if not frames:
            return
        table = pl.concat(frames)
        if united:
            _check_filled(table)
            judged = table.filter(pl.col("label").is_not_null()).select("qid", "docid", "label")
            ranked = table.filter(pl.col("label").is_null()).select("qid", "docid", "score")
            result = evaluate_frames(judged, ranked, settings)
        else:
            result = evaluate_frames(None, table, settings)
        yield pa.RecordBatch.from_pydict({"state": [_write_state(result)]})

    return evaluate_partition


def _write_state(result: Evaluation) -> str:
    """An evaluation as JSON, in which the numbers keep all their bits."""
    coverage = {part.name: getattr(result.coverage, part.name) for part in fields(Coverage)}
    return json.dumps({
        "query_ids": np.asarray(result.query_ids).tolist(),
        "values": _as_lists(result.values),
        "empty": _as_lists(result.empty),
        "bounds": {
            name: {side: np.asarray(getattr(bounds, side)).tolist() for side in _SIDES}
            for name, bounds in result.bounds.items()
        },
        "no_choice": _as_lists(result.no_choice),
        "complete": _as_lists(result.complete),
        "coverage": {name: str(value) if isinstance(value, Fraction) else value for name, value in coverage.items()},
    })  # fmt: skip


def _read_state(text: str) -> Evaluation:
    state = json.loads(text)
    coverage = state.pop("coverage")
    for name in ("sum_of_fractions", "sum_at_cutoff"):
        coverage[name] = Fraction(coverage[name])
    for name in ("merging_measures", "first_ids"):
        coverage[name] = None if coverage[name] is None else tuple(coverage[name])
    arrays: dict[str, Any] = {name: {key: np.array(each) for key, each in state[name].items()}
              for name in ("values", "empty", "no_choice", "complete")}  # fmt: skip
    bounds = {name: Bounds(*(np.array(sides[side]) for side in _SIDES))
              for name, sides in state["bounds"].items()}  # fmt: skip
    return Evaluation(state["query_ids"], **arrays, bounds=bounds, coverage=Coverage(**coverage))


def _as_lists(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: np.asarray(values).tolist() for name, values in arrays.items()}


def _check_filled(table: pl.DataFrame) -> None:
    """Raise DataError for rows without a number, which could be of either table."""
    empty = table.filter(table["label"].is_null() & table["score"].is_null())
    if len(empty):
        raise DataError(f"labels and scores must be filled in every row, got {len(empty)} empty")
