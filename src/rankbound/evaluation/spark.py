"""Spark: evaluate the judgments and the run of Spark DataFrames where their partitions are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.frames import find_columns
from rankbound.data.large import is_spark_frame
from rankbound.difficulty.bounding import Bounds
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.large import Settings, evaluate_frames, sort_queries
from rankbound.evaluation.references import references_of
from rankbound.evaluation.result import Evaluation, merge_evaluations
from rankbound.lists import Coverage
from rankbound.packages import check_packages

if TYPE_CHECKING:
    import polars as pl

_SIDES, _FRACTIONS = ("worst", "expected", "best"), ("fractions", "fractions_at_cutoff")


def evaluate_spark_frames(qrels: Any, run: Any, settings: Settings) -> Evaluation:
    """`rankbound.evaluate` of Spark DataFrames: the same numbers to the last bit, whatever the partitions.

    The rows are divided by query (``repartition``), the executors evaluate whole queries (``mapInArrow``), and the
    values of the queries are put together here, in ascending order of their ids, which are text. Without a run the
    other DataFrame has labels and scores.
    """
    check_packages("this integration", "pyspark", "pyarrow", "pandas")
    if not all(map(is_spark_frame, (qrels,) if run is None else (qrels, run))):
        raise ArgumentError("judgments and run must both be Spark DataFrames if one of them is")
    if settings.source.rule != settings.source.name or settings.against_random:
        raise ArgumentError(
            "Spark DataFrames are evaluated without against_random, and candidates must be 'judged' or 'returned' "
            f"for them, got {settings.source.name!r}"
        )
    references_of(None, settings.measures, settings.protocol)  # refuses standardized measures, whose runs are not here
    table = _scored(qrels) if run is None else _united(qrels, run)
    rows = table.repartition("qid").mapInArrow(_partition_function(settings, run is not None), "state string").collect()
    result = merge_evaluations([_read_state(row["state"]) for row in rows])
    if result.coverage.shared_queries == 0:
        raise DataError("there are no queries to evaluate: judgments and run have none in common, or no rows")
    return replace(sort_queries(result), protocol=settings.protocol)


def _selected(table: Any, required: tuple[str, ...]) -> Any:
    """The columns of a DataFrame under rankbound's names; ids as text, numbers as float64."""
    from pyspark.sql import functions

    theirs = find_columns(list(table.columns), {}, required=required)
    kinds = {"label": "double", "score": "double"}
    return table.select(
        *(functions.col(f"`{theirs[name]}`").cast(kinds.get(name, "string")).alias(name) for name in required)
    )


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
    return json.dumps(
        {
            "query_ids": np.asarray(result.query_ids).tolist(),
            "values": _as_lists(result.values),
            "empty": _as_lists(result.empty),
            "bounds": {
                name: {side: np.asarray(getattr(bounds, side)).tolist() for side in _SIDES}
                for name, bounds in result.bounds.items()
            },
            "no_choice": _as_lists(result.no_choice),
            "complete": _as_lists(result.complete),
            "coverage": coverage | {name: [each.tolist() for each in coverage[name]] for name in _FRACTIONS},
        }
    )


def _read_state(text: str) -> Evaluation:
    state = json.loads(text)
    coverage = state.pop("coverage")
    for name in _FRACTIONS:
        coverage[name] = tuple(map(np.array, coverage[name]))
    for name in ("merging_measures", "first_ids"):
        coverage[name] = None if coverage[name] is None else tuple(coverage[name])
    arrays: dict[str, Any] = {
        name: {key: np.array(each) for key, each in state[name].items()}
        for name in ("values", "empty", "no_choice", "complete")
    }
    bounds = {name: Bounds(*(np.array(sides[side]) for side in _SIDES)) for name, sides in state["bounds"].items()}
    return Evaluation(state["query_ids"], **arrays, bounds=bounds, coverage=Coverage(**coverage))


def _as_lists(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: np.asarray(values).tolist() for name, values in arrays.items()}


def _check_filled(table: pl.DataFrame) -> None:
    """Raise DataError for rows without a number, which could be of either table."""
    empty = table.filter(table["label"].is_null() & table["score"].is_null())
    if len(empty):
        raise DataError(f"labels and scores must be filled in every row, got {len(empty)} empty")
