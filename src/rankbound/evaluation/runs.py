"""evaluate: plain and normalized measures of rankings, per query and averaged over queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial, singledispatch
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from rankbound.data import large
from rankbound.data.candidates import read_candidates
from rankbound.data.held_out import held_out_judgments, is_held_out
from rankbound.data.json_lines import is_json_lines, read_json_lines
from rankbound.data.judged import CandidatesError, dict_chunks
from rankbound.data.large import is_in_parts, is_spark_frame, row_count
from rankbound.data.sources import chunks_of_lists, is_large_text, is_parquet, is_source, to_frame
from rankbound.difficulty.candidates import check_rule
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.groups import read_groups
from rankbound.evaluation.label_uncertainty import with_grades, with_probability_table
from rankbound.evaluation.large import Settings, evaluate_tables, evaluate_text
from rankbound.evaluation.lists import evaluate_lists, warn_of_coverage
from rankbound.evaluation.ranks import evaluate_ranks, is_rank_table
from rankbound.evaluation.references import references_of
from rankbound.evaluation.result import Evaluation, Evaluations, merge_evaluations
from rankbound.evaluation.spark import evaluate_spark_frames
from rankbound.lists import Lists
from rankbound.measures import parse_measures
from rankbound.protocol import (
    CANDIDATES,
    DEFAULT_MEASURES,
    MEASURES_OF_UNJUDGED,
    RECOMMENDER_MEASURES,
    UNJUDGED,
    Protocol,
    ProtocolFields,
    as_protocol,
)

if TYPE_CHECKING:
    import polars as pl


_DEFAULT = Protocol()


@overload
def evaluate(
    qrels: Any,
    run: Mapping[str, str | PathLike[str] | pl.DataFrame],
    measures: Any = None,
    protocol: Protocol | None = None,
    **options: Any,
) -> Evaluations: ...
@overload
def evaluate(
    qrels: Any, run: Any = None, measures: Any = None, protocol: Protocol | None = None, **options: Any
) -> Evaluation: ...
def evaluate(  # type: ignore[misc]  # the overloads do not repeat the options
    qrels: Any,
    run: Any = None,
    measures: Any = None,
    protocol: Protocol | None = None,
    *,
    bounds: bool = False,
    against_random: bool = False,
    min_rating: float | None = None,
    groups: Any = None,
    cluster: Any = None,
    shuffle: bool = True,
    scratch: str | PathLike[str] | None = None,
    **fields: Unpack[ProtocolFields],
) -> Evaluation | Evaluations:
    """Evaluate a run against judgments, or `Lists` that carry scores.

    Several runs, ``{name: run}``, give `Evaluations`, a dict with the result of each.

    Parameters
    ----------
    qrels, run:
        Paths of TREC files, ``{query: {document: number}}`` dicts, or tables with the columns ``qid, docid`` and
        ``label`` or ``score``: polars or pandas frames, Arrow tables, Hugging Face data sets, csv or parquet files.
        Also objects of ranx, the folder of a BEIR data set or a LETOR file as qrels, and ids of ir_datasets
        (``"irds:vaswani"``). A file of JSON lines with expected and retrieved ids is both qrels and run, and may be the
        only data. Documents of a LETOR file have the names that `rankbound rank` writes.
        Held-out interactions of a recommender, with columns ``user, item`` and no labels, can be qrels as well, and
        lists of recommendations, with columns ``user, item, score`` or ``rank``, the run; or the run is a fitted
        recommender, which is evaluated by full ranking (`rankbound.models.evaluate_recommender`).
        Or give scored Lists as the only data, ``evaluate(lists, measures=[...])``, or the path of a parquet file with
        ``qid, label, score``. A run or scored table in a parquet file is read chunk by chunk, so that it may be larger
        than memory; the rows of a query must stand together there. So is a TREC run of 32 MiB or more on disk,
        compressed or not; if its rows of a query are not adjacent, it is shuffled. Tables with ids of different types
        are compared as text, and two dicts as they are: the document 7 is not "7".
    measures:
        Names such as ``"nDCG@10"``, ``"AP(rel=2)"``, ``"EM(nDCG@10)"``, one or several; objects of ir_measures too. By
        default nDCG@10, AP, RR and EM(nDCG@10), and for held-out interactions nDCG@10, R@10, Success@10 and
        AP(div='min')@10.
    protocol, fields:
        How the run is evaluated: a `rankbound.Protocol`, or its fields as keyword arguments (``ties="docid"``), which
        replace those of the protocol. The fields are ties, empty, missing, judged_only, depth, candidates,
        judged_outside, unjudged and references.
    bounds:
        Add worst, expected and best of every measure over all rankings of the query's candidates.
    against_random:
        Add the p-values of each query against random rankings of its candidates; see `rankbound.against_random`.
    min_rating:
        The smallest rating of a relevant item, if the qrels are held-out interactions; by default every item that a
        user interacted with is relevant.
    groups:
        Groups of queries: ``{query: group}``, or a table with ``qid`` and a column per attribute, for
        `Evaluation.by_group`.
    cluster:
        Workers that evaluate parquet files part by part: ``"local:4"`` for four processes of this machine, the address
        of a Dask scheduler (``"tcp://host:8786"``), or a client of Dask. The numbers are the same to the last bit.
    shuffle:
        Whether tables in parts, and large TREC runs, may be written again, divided by query, if rows of a query are
        not adjacent; False raises DataError instead.
    scratch:
        The folder for shuffled tables, which all workers of a cluster must see; by default that of temporary files.

    Spark DataFrames are evaluated by their executors, which need rankbound and pyarrow, partition by partition; these
    must fit into their memory: about a million rows are a good size (``spark.sql.shuffle.partitions``).

    Tables in parts are a pattern (``"run-*.parquet"``) or folder of parquet files, whose name ends in .parquet, or a
    Dask DataFrame. They may be larger than memory; the values of the queries, 8 bytes for each measure, are kept. The
    queries are in the order of judgments in memory, and in ascending order of their ids otherwise.

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
    if isinstance(qrels, Lists) and measures is None:
        run, measures = None, run
    if protocol is None and not fields:
        protocol = _DEFAULT
    else:
        protocol = with_probability_table(as_protocol(protocol, fields))
    if measures is None:
        measures = default_measures(qrels) or (MEASURES_OF_UNJUDGED if protocol.has_unknown_labels else None)
    if not isinstance(measures, Mapping):
        measures = parse_measures(DEFAULT_MEASURES if measures is None else measures)
    if min_rating is not None:
        qrels = held_out_judgments(qrels, min_rating)
    if run is None and is_json_lines(qrels):
        run = qrels
    known = None if groups is None else read_groups(groups)
    settings = Settings(measures, protocol, bounds, against_random)
    work = {"cluster": cluster, "shuffle": shuffle, "scratch": scratch}
    if isinstance(run, Mapping) and are_runs_by_name(run):
        results = evaluate_runs(qrels, run, settings, **work)
        return results if known is None else results.with_groups(known)
    result = evaluate_run(qrels, run, settings, **work)
    if result.coverage.warning is not None:
        warn_of_coverage(result.warnings)
    return result if known is None else result.with_groups(known)


def default_measures(qrels: Any) -> tuple[str, ...] | None:
    """The measures of recommenders if the judgments are held-out interactions; None stands for those of search."""
    return RECOMMENDER_MEASURES if not is_in_parts(qrels) and is_held_out(qrels) else None


@singledispatch
def evaluate_model(model: object, qrels: Any, settings: Settings) -> Evaluation | None:
    """Evaluate a model that is given as a run, such as a recommender; None for anything that is no model.

    Packages whose models can be evaluated register their classes.
    """
    return None


def _is_model(run: object) -> bool:
    return evaluate_model.dispatch(type(run)) is not evaluate_model.dispatch(object)


def evaluate_run(
    qrels: Any,
    run: Any,
    settings: Settings,
    *,
    cluster: Any = None,
    shuffle: bool = True,
    scratch: str | PathLike[str] | None = None,
) -> Evaluation:
    """`evaluate` without its warnings."""
    kind = _kind_of_input(qrels, run, cluster)
    protocol = settings.protocol
    if not isinstance(protocol.candidates, str) or protocol.candidates not in CANDIDATES:
        if kind == "lists":
            check_rule(protocol.candidates)
        protocol = replace(protocol, candidates=read_candidates(protocol.candidates, protocol.judged_outside))
    if kind == "model":
        result = evaluate_model(run, qrels, replace(settings, protocol=protocol))
        assert result is not None
        return result
    if kind == "ranks":
        if settings.against_random:
            raise ArgumentError("against_random needs runs, not a table of ranks")
        return evaluate_ranks(qrels, settings.measures, protocol, bounds=settings.bounds)
    if protocol.references is not None or kind in ("tables", "text"):
        references = references_of(None if run is None else qrels, settings.measures, protocol)
        protocol = protocol if references is protocol.references else replace(protocol, references=references)
    if protocol.unjudged != UNJUDGED[0]:
        if kind == "lists" or not (run is None or _are_in_parts(qrels, run, cluster) or _are_large_judgments(qrels)):
            protocol = with_grades(protocol, qrels)
        elif protocol.unjudged == "range" or not isinstance(protocol.unjudged, str):
            raise ArgumentError(
                "unjudged documents of tables in parts can be 'zero' or have given grades, 'range:0,1,2'"
            )
    if protocol is not settings.protocol:
        settings = replace(settings, protocol=protocol)
    if kind == "memory":
        result = _evaluate_in_memory(qrels, run, settings)
    elif kind == "lists":
        result = settings.evaluate_lists(qrels)
    elif kind == "spark":
        result = evaluate_spark_frames(qrels, run, settings)
    elif kind == "text":
        judgments = to_frame(qrels, "label", column=settings.source.column)
        result = evaluate_text(judgments, run, settings, shuffle=shuffle, scratch=scratch)
    else:
        on_disk = run is None or cluster is not None or is_in_parts(qrels) or _are_large_judgments(qrels)
        judgments = qrels if on_disk else to_frame(qrels, "label", column=settings.source.column)
        result = evaluate_tables(judgments, run, settings, cluster=cluster, shuffle=shuffle, scratch=scratch)
    if protocol.references is not None:
        protocol.references.check_covers(result.query_ids)
        result = replace(result, remarks={**result.remarks, "references": protocol.references.describe()})
    if not isinstance(protocol.candidates, str):
        result = replace(result, protocol=replace(protocol, candidates=protocol.candidates.name))
    return result


def _evaluate_in_memory(qrels: Any, run: Any, settings: Settings) -> Evaluation:
    """Evaluate judgments and a run of moderate size, dicts in parts."""
    protocol = settings.protocol
    policy: dict[str, Any] = {
        "missing": protocol.missing,
        "judged_only": protocol.judged_only,
        "keep_ids": protocol.ties == "docid" or not isinstance(protocol.unjudged, (str, float, int)),
    }
    if isinstance(qrels, Mapping) and isinstance(run, Mapping) and isinstance(protocol.candidates, str):
        chunks = dict_chunks(qrels, run, **policy)
    else:
        chunks = chunks_of_lists(qrels, run, candidates=settings.source, **policy)
    evaluated = partial(
        evaluate_lists,
        measures=settings.measures,
        protocol=protocol,
        bounds=settings.bounds,
        against_random=settings.against_random,
    )
    results = [*map(evaluated, chunks)]
    return results[0] if len(results) == 1 else merge_evaluations(results)


def _kind_of_input(
    qrels: Any, run: Any, cluster: Any
) -> Literal["memory", "model", "lists", "ranks", "tables", "text", "spark"]:
    """Which way of evaluating these data have; ArgumentError if there is none."""
    if isinstance(qrels, Mapping) and isinstance(run, Mapping) and cluster is None:
        return "memory"
    if _is_model(run):
        return "model"
    if isinstance(qrels, Lists):
        if run is not None:
            raise ArgumentError("Lists carry their scores; evaluate(lists, measures=[...]) takes no run")
        return "lists"
    if (run is None or run is qrels) and is_rank_table(qrels):
        return "ranks"
    if is_spark_frame(qrels) or is_spark_frame(run):
        return "spark"
    if _are_in_parts(qrels, run, cluster) or is_parquet(run) or (run is None and is_parquet(qrels)):
        return "tables"
    if run is None:
        raise ArgumentError("evaluate needs qrels and a run, or Lists that carry scores")
    return "text" if is_large_text(run) else "memory"


def evaluate_runs(qrels: Any, runs: Mapping[str, Any], settings: Settings, **work: Any) -> Evaluations:
    """`evaluate` of several runs against the same judgments, which are read once."""
    protocol = settings.protocol
    several = len(runs) > 1 or protocol.references is not None
    source = read_candidates(protocol.candidates, protocol.judged_outside)
    judgments = read_json_lines(qrels, "label") if is_json_lines(qrels) else qrels
    in_parts = any(_are_in_parts(qrels, run, work.get("cluster")) for run in runs.values())
    if several and not in_parts and not isinstance(judgments, Mapping) and not any(map(_is_model, runs.values())):
        judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    protocol = replace(protocol, candidates=source)
    if protocol.references is not None:  # they are evaluated once for all runs
        protocol = replace(protocol, references=references_of(judgments, settings.measures, protocol))
    settings = replace(settings, protocol=protocol)
    results = Evaluations()
    for name, run in runs.items():
        try:
            results[name] = evaluate_run(judgments, run, settings, **work)
        except CandidatesError:
            raise
        except DataError as error:
            files = (f"{name}:", f"{qrels}:" if isinstance(qrels, (str, PathLike)) else f"{name}:")
            raise error if str(error).startswith(files) else DataError(f"{name}: {error}") from error
    warn_of_coverage([f"{name}: {text}" for name, result in results.items() for text in result.warnings])
    return results


def _are_in_parts(qrels: Any, run: Any, cluster: Any) -> bool:
    """Whether these are tables in parts, or files for a cluster; ArgumentError if it cannot read them."""
    if cluster is None or is_in_parts(qrels) or is_in_parts(run):
        return is_in_parts(qrels) or is_in_parts(run)
    if not is_parquet(qrels) or not (run is None or is_parquet(run)):
        raise ArgumentError("cluster is for parquet files and Dask DataFrames, both judgments and run")
    return True


def _are_large_judgments(qrels: Any) -> bool:
    """Whether judgments are in a parquet file that should not be held in memory as a whole."""
    return is_parquet(qrels) and row_count(qrels) > large.ROWS and not is_held_out(qrels)


def are_runs_by_name(run: Any) -> bool:
    """Whether a mapping holds runs by their names: paths, tables or dicts of dicts, not documents by query."""
    if not isinstance(run, Mapping):
        return False
    first = next(iter(run.values()), None)
    if isinstance(first, Mapping):
        return isinstance(next(iter(first.values()), None), Mapping)
    return is_source(first) or _is_model(first)
