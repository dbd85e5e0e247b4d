"""Spark: evaluate the judgments and the run of Spark DataFrames where their partitions are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rankbound.data.candidates import read_candidates
from rankbound.data.frames import find_columns
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.partitioned import Settings, evaluate_frames
from rankbound.evaluation.summary import EvaluationSummary
from rankbound.measures import parse_measures
from rankbound.packages import required_package

if TYPE_CHECKING:
    import polars as pl

__all__ = ["evaluate_spark"]

_STATE = "state string"


def evaluate_spark(
    qrels: Any,
    run: Any = None,
    measures: Any = None,
    *,
    ties: str = "average",
    empty: str = "skip",
    missing: str = "ignore",
    judged_only: bool = False,
    depth: int | None = None,
    bounds: bool = False,
    candidates: str = "judged",
    partitions: int | None = None,
) -> EvaluationSummary:
    """Evaluate Spark DataFrames: the numbers of `rankbound.evaluate` to the last bit, whatever the partitions.

    The rows are divided by query (``repartition``), the executors evaluate whole queries (``mapInArrow``), and the
    small summaries of the partitions are added here. The executors need rankbound and pyarrow.

    Parameters
    ----------
    qrels, run:
        Spark DataFrames with the columns ``qid, docid, label`` and ``qid, docid, score``; or one with ``qid, label,
        score`` and no run.
    measures, ties, empty, missing, judged_only, depth, bounds, candidates:
        As in `rankbound.evaluate`; candidates are "judged" or "returned".
    partitions:
        Partitions to divide the queries into; by default ``spark.sql.shuffle.partitions``. A partition must fit into
        the memory of an executor: about a million rows are a good size.
    """
    required_package("pyspark", "spark")
    if measures is None:
        raise ArgumentError("evaluate needs measures, such as ['nDCG@10', 'AP']")
    if candidates not in ("judged", "returned"):
        raise ArgumentError(f"candidates must be 'judged' or 'returned' for Spark DataFrames, got {candidates!r}")
    settings = Settings(
        tuple(parse_measures(measures)), ties, empty, missing, judged_only, depth, bounds, read_candidates(candidates)
    )
    table = _scored(qrels) if run is None else _united(qrels, run)
    divided = table.repartition(*(() if partitions is None else (partitions,)), "qid")
    rows = divided.mapInArrow(_partition_function(settings, run is not None), _STATE).collect()
    summary = EvaluationSummary.merged(EvaluationSummary.from_json(row["state"]) for row in rows)
    if summary.coverage.shared_queries == 0:
        raise DataError("there are no queries to evaluate: judgments and run have none in common, or no rows")
    policy = {"candidates": candidates, "ties": ties, "empty": empty, "missing": missing}
    return summary.with_policy(policy)


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
        yield pa.RecordBatch.from_pydict({"state": [result.summary.to_json()]})

    return evaluate_partition


def _check_filled(table: pl.DataFrame) -> None:
    """Raise DataError for rows without a number, which could be of either table."""
    empty = table.filter(table["label"].is_null() & table["score"].is_null())
    if len(empty):
        raise DataError(f"labels and scores must be filled in every row, got {len(empty)} empty")
