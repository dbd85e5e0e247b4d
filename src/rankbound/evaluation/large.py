"""Evaluate tables larger than memory, in this process or by the workers of a Dask cluster, with the same numbers.

`evaluate_frames`, a pure function, evaluates a partition of whole queries. The value of a query depends on its own rows
only, and means are sums that are rounded once, so that every division of the queries gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data import trec
from rankbound.data.candidates import CandidateSource, read_candidates
from rankbound.data.frames import id_text, lists_from_frame, polars_failures
from rankbound.data.judged import CandidatesError, DuplicateError, from_frames, nothing_in_common
from rankbound.data.large import SeenQueries, Table, look_up, whole_queries
from rankbound.data.parts import Part, SplitQueryError, Tables, divide, not_written, open_work, scratch_folder
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.lists import evaluate_lists
from rankbound.evaluation.result import Evaluation, merge_evaluations, reorder_queries
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class Settings:
    """How each part is evaluated."""

    measures: Mapping[str, Measure]
    protocol: Protocol
    """With candidates and references that have been read."""
    bounds: bool = False
    against_random: bool = False

    @property
    def source(self) -> CandidateSource:
        """The candidates that have been read."""
        return read_candidates(self.protocol.candidates, self.protocol.judged_outside)

    def evaluate_lists(self, lists: Lists) -> Evaluation:
        """Evaluate scored lists in this way."""
        return evaluate_lists(
            lists, self.measures, self.protocol, bounds=self.bounds, against_random=self.against_random
        )


def evaluate_frames(qrels: pl.DataFrame | None, run: pl.DataFrame, settings: Settings) -> Evaluation:
    """Evaluate a partition of whole queries: judgments and a run, or a scored table if ``qrels`` is None.

    Either may have queries that the other lacks, even all of them: these are counted in the coverage.
    """
    if qrels is None:
        marked = "candidate" if settings.source.column is not None else None
        lists: Lists | None = lists_from_frame(run, candidate=marked) if len(run) else None
        coverage = Coverage()
    else:
        lists, coverage = _join(qrels, run, settings)
    if lists is None or len(lists) == 0:
        return Evaluation([], {}, {}, coverage=coverage)
    return settings.evaluate_lists(lists)


def _join(qrels: pl.DataFrame, run: pl.DataFrame, settings: Settings) -> tuple[Lists | None, Coverage]:
    protocol = settings.protocol
    judged, source = settings.source.take_column(qrels)
    if len(judged) == 0:
        return None, Coverage(unjudged_queries=run["qid"].n_unique())
    if len(run) == 0 and protocol.missing == "ignore":
        return None, Coverage(missing_queries=judged["qid"].n_unique())
    lists = from_frames(
        judged,
        run,
        missing=protocol.missing,
        judged_only=protocol.judged_only,
        disjoint=True,
        candidates=source.of_queries(judged["qid"].unique()),
    )
    assert lists.coverage is not None
    return lists, lists.coverage


def evaluate_tables(
    qrels: Any,
    run: Any,
    settings: Settings,
    *,
    cluster: Any = None,
    shuffle: bool = True,
    scratch: str | PathLike[str] | None = None,
) -> Evaluation:
    """`rankbound.evaluate` of tables in parquet files; ``run`` is None for a table with labels and scores.

    ``qrels`` can be a frame as well. The queries are in the order of that frame, otherwise in the order of their ids.
    """
    import polars as pl

    if settings.source.table is not None and run is None:
        raise ArgumentError("a table of labels and scores has no documents; candidates must be a rule or column:NAME")
    column = settings.source.column
    with open_work(cluster, scratch) as work:
        if run is None:
            tables = Tables(work.open(qrels, ("qid", "label", "score"), column), None)
        else:
            table, in_memory = work.open(run, ("qid", "docid", "score")), isinstance(qrels, pl.DataFrame)
            tables = Tables(table, qrels if in_memory else work.open(qrels, ("qid", "docid", "label"), column))
        for side in tables:
            if isinstance(side, Table) and side.rows == 0:
                raise DataError(f"{side.name}: there are no queries to evaluate")
        tables, parts, reason = divide(tables, shuffle=shuffle, folder=work.folder)
        results = work.results("evaluating", partial(_evaluate_part, tables, settings), parts)
        judgments = tables.judgments
        if judgments is not None and all(part.judgments is None for part in parts):
            results += _evaluate_missing(judgments, results, settings)
        if judgments is not None and not any(result.coverage.shared_queries for result in results):
            first = judgments.first_query() if isinstance(judgments, Table) else judgments["qid"][0]
            raise nothing_in_common(first, tables.run.first_query())
    result = merge_evaluations(results)
    order = judgments["qid"] if isinstance(judgments, pl.DataFrame) else None
    result = sort_queries(result, order)
    return replace(result, remarks={"shuffled": reason}) if reason else result


def _evaluate_part(tables: Tables, settings: Settings, part: Part) -> Evaluation:
    qrels, run = tables.read(part)
    try:
        return evaluate_frames(qrels, run, settings)
    except CandidatesError:
        raise
    except DataError as error:
        raise DataError(f"{part.name}: {error}") from error


def _evaluate_missing(
    judgments: Table | pl.DataFrame, results: Sequence[Evaluation], settings: Settings
) -> list[Evaluation]:
    """The judged queries that are in no part of the run, counted or evaluated as the settings say."""
    import polars as pl

    kind = (judgments if isinstance(judgments, pl.DataFrame) else judgments.read(()))["qid"].dtype
    returned = [pl.Series(result.query_ids, dtype=kind) for result in results if result.queries]
    missing = look_up(judgments, pl.concat(returned) if returned else pl.Series([], dtype=kind), others=True)
    run = missing.select("qid", "docid", pl.lit(0.0).alias("score")).head(0)
    return [evaluate_frames(missing, run, settings)] if len(missing) else []


def sort_queries(result: Evaluation, order: pl.Series | None = None) -> Evaluation:
    """The evaluation with its queries in the order of some ids, or in ascending order."""
    import polars as pl

    qid = pl.Series(result.query_ids) if order is None else pl.Series(result.query_ids, dtype=order.dtype)
    if order is not None:
        names = order.unique(maintain_order=True)
        ranks = pl.DataFrame({"qid": names, "rank": np.arange(len(names))})
        qid = pl.DataFrame({"qid": qid}).join(ranks, on="qid", how="left", maintain_order="left")["rank"]
    return result if qid.is_sorted() else reorder_queries(result, qid.arg_sort().to_numpy())


def evaluate_text(
    qrels: pl.DataFrame,
    path: str | PathLike[str],
    settings: Settings,
    *,
    shuffle: bool = True,
    scratch: str | PathLike[str] | None = None,
) -> Evaluation:
    """Evaluate a TREC run chunk by chunk, with its queries in the order of the judgments, as if it were read at once.

    If rows of a query are not adjacent, the run is written to a scratch folder, and evaluated as a table from there.
    """
    judged = qrels.with_columns(id_text(qrels["qid"]))
    try:
        try:
            results = _evaluate_chunks(judged, path, settings)
        except SplitQueryError as error:
            if not shuffle:
                raise
            reason = error.reason
        else:
            results += _evaluate_missing(judged, results, settings)
            result = merge_evaluations(results)
            if result.coverage.shared_queries == 0:
                raise nothing_in_common(judged["qid"][0], next(trec.run_frames(path))["qid"][0])
            return sort_queries(result, judged["qid"])
        with scratch_folder(scratch) as folder:
            table = _write_run(path, Path(folder) / "run.parquet")
            result = evaluate_tables(judged, table, settings, scratch=folder)
        return replace(result, remarks={"shuffled": reason})
    except DataError as error:
        twice = error if isinstance(error, DuplicateError) else error.__cause__
        if not isinstance(twice, DuplicateError):
            raise
        raise trec.repeated_document(path, twice.query, twice.document) or twice from error


def _evaluate_chunks(judged: pl.DataFrame, path: str | PathLike[str], settings: Settings) -> list[Evaluation]:
    seen, results = SeenQueries(), []
    for frame in whole_queries(trec.run_frames(path)):
        if (again := seen.add(frame["qid"])) is not None:
            raise SplitQueryError(path, f"the rows of query {again!r} are not adjacent")
        results.append(evaluate_frames(look_up(judged, frame["qid"].unique()), frame, settings))
    return results


def _write_run(path: str | PathLike[str], folder: Path) -> Path:
    """Write the rows of a TREC run as a folder of parquet files."""
    folder.mkdir()
    for number, frame in enumerate(trec.run_frames(path)):
        file = folder / f"{number:09d}.parquet"
        try:
            frame.write_parquet(file)
        except polars_failures() as error:
            raise not_written(file, error) from error
    return folder
