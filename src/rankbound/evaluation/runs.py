"""evaluate: plain and normalized measures of rankings, per query and averaged over queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from rankbound.data import table_chunks, table_parts, trec
from rankbound.data.candidates import CandidateSource, read_candidates
from rankbound.data.frames import id_text
from rankbound.data.held_out import held_out_judgments, is_held_out
from rankbound.data.judged import CandidatesError, DuplicateError
from rankbound.data.part_work import is_in_parts
from rankbound.data.sources import chunks_of_lists, is_large_text, is_parquet, is_source, to_frame
from rankbound.difficulty.candidates import check_rule
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.coverage import warn_of_coverage
from rankbound.evaluation.lists import EMPTY, evaluate_lists, requested_measures
from rankbound.evaluation.partitioned import evaluate_parts
from rankbound.evaluation.references import references_of
from rankbound.evaluation.result import Evaluation, Evaluations, concatenated, in_order
from rankbound.evaluation.summary import EvaluationSummary
from rankbound.lists import Coverage, Lists
from rankbound.measures import parse_measures

if TYPE_CHECKING:
    import polars as pl

__all__ = ["EMPTY", "evaluate", "evaluate_lists", "evaluate_runs"]


@overload
def evaluate(
    qrels: Any, run: Mapping[str, str | PathLike[str] | pl.DataFrame], measures: Any = None, **options: Any
) -> Evaluations: ...
@overload
def evaluate(qrels: Any, run: Any = None, measures: Any = None, **options: Any) -> Evaluation: ...
def evaluate(  # type: ignore[misc]  # the overloads do not repeat the options
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
    candidates: Any = "judged",
    judged_outside: str = "error",
    against_random: bool = False,
    references: Any = None,
    min_rating: float | None = None,
    cluster: Any = None,
    shuffle: bool = True,
    per_query: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
) -> Evaluation | EvaluationSummary | Evaluations:
    """Evaluate a run against judgments, or `Lists` that carry scores.

    Several runs, ``{name: run}``, give `Evaluations`, a dict with the result of each.

    Parameters
    ----------
    qrels, run:
        Paths of TREC files, ``{query: {document: number}}`` dicts, or tables with the columns ``qid, docid`` and
        ``label`` or ``score``: polars or pandas frames, Arrow tables, Hugging Face data sets, csv or parquet files.
        Also objects of ranx, the folder of a BEIR data set or a LETOR file as qrels, and ids of ir_datasets
        (``"irds:vaswani"``). Documents of a LETOR file have the names that `rankbound rank` writes.
        Held-out interactions of a recommender, with columns ``user, item`` and no labels, can be qrels as well, and
        lists of recommendations, with columns ``user, item, score`` or ``rank``, the run.
        Or give scored Lists as the only data, ``evaluate(lists, measures=[...])``, or the path of a parquet file with
        ``qid, label, score``. A run or scored table in a parquet file is read chunk by chunk, so that it may be larger
        than memory; the rows of a query must stand together there. So is a TREC run of 32 MiB or more on disk,
        compressed or not; if its rows of a query are not adjacent, it is shuffled. Tables with ids of different types
        are compared as text, and two dicts as they are: the document 7 is not "7".
    measures:
        Names such as ``"nDCG@10"``, ``"AP(rel=2)"``, ``"EM(nDCG@10)"``, one or several; objects of ir_measures too.
    ties:
        ``average`` takes the mean over all orders of tied items, ``input`` keeps the order of the input,
        ``docid`` is trec_eval's order (32-bit scores, ids descending). A normalized measure is normalized in each
        order before the mean is taken, which matters for UL1, UL2, UL2C and DB (`rankbound.difficulty.ties`).
    empty:
        How to count queries for which a measure is not defined: leave them out (``skip``), ``zero`` or ``one``.
    missing:
        Judged queries that the run lacks: ``ignore`` them or count them as empty rankings, ``zero``
        (trec_eval -c).
    judged_only:
        Leave documents without judgment out of the run (trec_eval -J).
    depth:
        Look only at the first ``depth`` documents of each query (trec_eval -M); bounds and normalized measures are
        those of rankings of which only the first ``depth`` ranks count.
    bounds:
        Add worst, expected and best of every measure over all rankings of the query's candidates.
    candidates:
        The documents whose rankings a query's bounds and normalized measures are about. For these, the run is read as a
        complete ranking of the candidates: other documents are taken out, and candidates that it did not return are
        tied below those that it did. Plain measures do not depend on them. ``"judged"``: the judged documents;
        ``"returned"``: the judged documents that the run returned; a path (TREC run or qrels, lines "query document",
        csv or parquet), a frame with ``qid, docid``, or ``{query: documents}``: those documents, where documents
        without a judgment have label 0; ``"column:NAME"``: the rows of the judgments, or of a table with ``qid, label,
        score``, that have true in this column.
    judged_outside:
        Judged documents that given candidates lack: an ``error``, or ``ignore`` them, because a re-ranker cannot return
        what its first stage did not retrieve.
    against_random:
        Add the p-values of each query against random rankings of its candidates; see `rankbound.against_random`.
    references:
        Reference runs of standardized measures, such as ``STD(nDCG@10)``: at least two, as ``{name: run}`` or a
        sequence, in the same form as ``run`` and evaluated by the same policies; or the result of
        `evaluate_references`, or the path of a ``.json`` file of it.
    min_rating:
        The smallest rating of a relevant item, if the qrels are held-out interactions; by default every item that a
        user interacted with is relevant.
    cluster:
        Workers that evaluate parquet files part by part: ``"local:4"`` for four processes of this machine, the address
        of a Dask scheduler (``"tcp://host:8786"``), or a client of Dask. The numbers are the same to the last bit.
    shuffle:
        Whether tables in parts, and large TREC runs, may be written again, divided by query, if rows of a query are
        not adjacent; False raises DataError instead.
    per_query:
        The .parquet file for the values of each query of tables in parts.
    scratch:
        The folder for shuffled tables, which all workers of a cluster must see; by default that of temporary files.

    Tables in parts are a pattern (``"run-*.parquet"``) or folder of parquet files, whose name ends in .parquet, or a
    Dask DataFrame; with a ``cluster`` also single parquet files. They give an `EvaluationSummary`, which has means,
    intervals, quantiles and counts, but holds no values of single queries, so that memory does not grow with the number
    of queries.

    Warns
    -----
    CoverageWarning
        If judgments and run have no document in common in any shared query, or if labels below 0, which count as 0,
        differ for a measure that compares labels by their order, such as PairAcc.

    >>> qrels = {"q1": {"a": 1, "b": 0, "c": 0}, "q2": {"a": 0, "b": 1}}
    >>> run = {"q1": {"a": 0.2, "b": 0.9, "c": 0.1}, "q2": {"a": 0.1, "b": 0.8}}
    >>> evaluate(qrels, run, ["RR", "MM(RR)"])
    Evaluation(RR=0.7500, MM(RR)=0.6250; queries=2, empty=0)
    >>> evaluate(qrels, {"new": run, "old": qrels}, "RR")
    {'new': Evaluation(RR=0.7500; queries=2, empty=0), 'old': Evaluation(RR=1.0000; queries=2, empty=0)}
    """
    options: dict[str, Any] = {
        "ties": ties, "empty": empty, "missing": missing, "judged_only": judged_only, "depth": depth, "bounds": bounds,
        "candidates": candidates, "judged_outside": judged_outside, "against_random": against_random,
        "references": references,
    }  # fmt: skip
    in_parts = {"cluster": cluster, "shuffle": shuffle, "per_query": per_query, "scratch": scratch}
    if min_rating is not None:
        qrels = held_out_judgments(qrels, min_rating)
    if _are_runs_by_name(run):
        return evaluate_runs(qrels, run, _required(measures), **options, **in_parts)
    result = _evaluate(qrels, run, measures, **options, **in_parts)
    warn_of_coverage(result.warnings)
    return result


def _evaluate(
    qrels: Any,
    run: Any,
    measures: Any,
    *,
    ties: str = "average",
    empty: str = "skip",
    missing: str = "ignore",
    judged_only: bool = False,
    depth: int | None = None,
    bounds: bool = False,
    candidates: Any = "judged",
    judged_outside: str = "error",
    against_random: bool = False,
    references: Any = None,
    cluster: Any = None,
    shuffle: bool = True,
    per_query: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
) -> Evaluation | EvaluationSummary:
    """`evaluate` without its warnings."""
    scored = isinstance(qrels, Lists)
    in_parts = not scored and _are_in_parts(qrels, run, cluster, per_query)
    needs_all = against_random or references is not None
    if in_parts and needs_all:
        raise ArgumentError("against_random and references need the values of all queries, not tables in parts")
    if in_parts or (is_parquet(run) and not needs_all and _are_large_judgments(qrels)):
        return evaluate_parts(
            qrels, run, requested_measures(_required(measures)), candidates=read_candidates(candidates, judged_outside),
            keep_values=not in_parts,
            cluster=cluster, shuffle=shuffle, per_query=per_query, scratch=scratch, ties=ties,
            empty=empty, missing=missing, judged_only=judged_only, depth=depth, bounds=bounds,
        )  # fmt: skip
    if scored:
        if measures is None:
            measures = run
        elif run is not None:
            raise ArgumentError("Lists carry their scores; evaluate(lists, measures=[...]) takes no run")
    elif run is None and not is_parquet(qrels):
        raise ArgumentError("evaluate needs qrels and a run, or Lists that carry scores")
    requested = requested_measures(_required(measures))  # a wrong name is reported before large files are read
    policy: dict[str, Any] = {"missing": missing, "judged_only": judged_only}
    judgments_of_references = None if scored or run is None else qrels
    reference_scores = references_of(judgments_of_references, references, requested, ties=ties, depth=depth, **policy)
    chosen = CandidateSource(check_rule(candidates)) if scored else read_candidates(candidates, judged_outside)
    described = {"candidates": candidates if scored else chosen.name, "ties": ties, "empty": empty, "missing": missing}

    def evaluated(lists: Lists) -> Evaluation:
        return evaluate_lists(
            lists, requested, ties=ties, empty=empty, depth=depth, bounds=bounds, candidates=chosen.rule,
            against_random=against_random, references=reference_scores,
        )  # fmt: skip

    if scored:
        result = evaluated(qrels)
    elif run is None:
        result = _evaluate_chunks(table_chunks.scored_chunks(qrels, candidates=chosen), evaluated)
    elif is_parquet(run) or is_large_text(run):
        judgments = to_frame(qrels, "label", column=chosen.column)
        if is_parquet(run):
            chunks = table_chunks.RunChunks(judgments, run, candidates=chosen, **policy)
            result = _evaluate_chunks(chunks, evaluated)
        else:
            result, reason = _evaluate_text(
                judgments, run, evaluated, shuffle=shuffle, scratch=scratch, candidates=chosen, **policy,
            )  # fmt: skip
            described |= {"shuffled": reason} if reason else {}
    else:
        lists = chunks_of_lists(qrels, run, keep_ids=ties == "docid", candidates=chosen, **policy)
        result = _evaluate_chunks(lists, evaluated)
    if reference_scores is not None:
        reference_scores.check_covers(result.query_ids)
        described["references"] = reference_scores.describe()
    return replace(result, policy=described)


def _evaluate_chunks(chunks: Iterable[Lists], evaluated: Callable[[Lists], Evaluation]) -> Evaluation:
    """Evaluate Lists of different queries as one."""
    results, coverage = [], Coverage()
    for lists in chunks:
        results.append(evaluated(lists))
        coverage += results[-1].coverage
    if isinstance(chunks, table_chunks.RunChunks):  # a chunk does not know the queries of the others
        known = chunks.coverage
        coverage = replace(coverage, missing_queries=known.missing_queries, unjudged_queries=known.unjudged_queries)
    return replace(concatenated(results), coverage=coverage)


def _evaluate_text(
    judgments: pl.DataFrame,
    run: str | PathLike[str],
    evaluated: Callable[[Lists], Evaluation],
    *,
    shuffle: bool,
    scratch: str | PathLike[str] | None,
    **options: Any,
) -> tuple[Evaluation, str]:
    """Evaluate a TREC run chunk by chunk; the second value says why the run was shuffled, if it was.

    The queries are in the order of the judgments, as if the run had been read at once. If rows of a query are not
    adjacent, the evaluation starts again with a run that is divided by query.
    """

    def of_frames(frames: Iterable[pl.DataFrame]) -> Evaluation:
        return _evaluate_chunks(table_chunks.RunChunks(judgments, run, frames=frames, **options), evaluated)

    shuffled = ""
    try:
        try:
            result = of_frames(trec.run_frames(run))
        except table_chunks.SplitQueryError as error:
            if not shuffle:
                raise
            shuffled = error.reason
            with table_chunks.shuffled_run(run, scratch) as frames:
                result = of_frames(frames)
    except DuplicateError as error:
        raise trec.repeated_document(run, error.query, error.document) or error from error
    names = id_text(judgments["qid"]).unique(maintain_order=True)
    rank = {name: index for index, name in enumerate(names)}
    return in_order(result, np.argsort([rank[name] for name in result.query_ids])), shuffled


def evaluate_runs(qrels: Any, runs: Mapping[str, Any], measures: Any, **options: Any) -> Evaluations:
    """Evaluate several runs against the same judgments, which are read once; the options are those of `evaluate`.

    >>> qrels = {"q": {"a": 1, "b": 0}}
    >>> results = evaluate_runs(qrels, {"good": {"q": {"a": 2, "b": 1}}, "bad": {"q": {"a": 1, "b": 2}}}, "RR")
    >>> {name: result.mean() for name, result in results.items()}
    {'good': {'RR': 1.0}, 'bad': {'RR': 0.5}}
    """
    requested = parse_measures(measures)
    references = options.get("references")
    several = len(runs) > 1 or references is not None
    source = read_candidates(options.pop("candidates", "judged"), options.pop("judged_outside", "error"))
    judgments = qrels
    in_parts = any(_are_in_parts(qrels, run, options.get("cluster"), options.get("per_query")) for run in runs.values())
    if several and options.get("per_query") is not None:
        raise ArgumentError("per_query is the file of one run, got several runs")
    if several and not in_parts and not isinstance(qrels, Mapping):
        judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    if references is not None:  # they are evaluated once for all runs
        policy = {key: options[key] for key in ("ties", "missing", "judged_only", "depth") if key in options}
        options["references"] = references_of(judgments, references, requested, **policy)
    results = Evaluations()
    for name, run in runs.items():
        try:
            results[name] = _evaluate(judgments, run, requested, candidates=source, **options)  # type: ignore[assignment]
        except CandidatesError:
            raise
        except DataError as error:
            files = (f"{name}:", f"{qrels}:" if isinstance(qrels, (str, PathLike)) else f"{name}:")
            raise error if str(error).startswith(files) else DataError(f"{name}: {error}") from error
    warn_of_coverage([f"{name}: {text}" for name, result in results.items() for text in result.warnings])
    return results


def _are_in_parts(qrels: Any, run: Any, cluster: Any, per_query: Any) -> bool:
    """Whether to evaluate part by part; ArgumentError if options for it come with data that are not in parts."""
    if is_in_parts(qrels) or is_in_parts(run):
        return True
    if cluster is None and per_query is None:
        return False
    if not is_parquet(qrels) or not (run is None or is_parquet(run)):
        raise ArgumentError("cluster and per_query are for parquet files and Dask DataFrames, both judgments and run")
    return True


def _are_large_judgments(qrels: Any) -> bool:
    """Whether judgments are in a parquet file that should not be held in memory as a whole."""
    return is_parquet(qrels) and table_parts.row_count(qrels) > table_parts.ROWS and not is_held_out(qrels)


def _are_runs_by_name(run: Any) -> bool:
    """Whether a mapping holds runs by their names: paths, tables or dicts of dicts, not documents by query."""
    if not isinstance(run, Mapping):
        return False
    first = next(iter(run.values()), None)
    if isinstance(first, Mapping):
        return isinstance(next(iter(first.values()), None), Mapping)
    return is_source(first)


def _required(measures: Any) -> Any:
    if measures is None:
        raise ArgumentError("evaluate needs measures, such as ['nDCG@10', 'AP']")
    return measures
