"""evaluate: plain and normalized measures of rankings, per query and averaged over queries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data import table_chunks
from rankbound.data.candidates import CandidateSource, read_candidates
from rankbound.data.judged import CandidatesError
from rankbound.difficulty.bounding import Bounds
from rankbound.difficulty.candidates import check_rule
from rankbound.difficulty.p_values import PValues
from rankbound.difficulty.run_values import RunValues
from rankbound.difficulty.standardization import LEAST_REFERENCES, ReferenceScores, missing_references
from rankbound.errors import ArgumentError, CoverageWarning, DataError
from rankbound.lists import Coverage, Lists, check_dicts
from rankbound.measures import Measure, parse_measure, parse_measures

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "EMPTY",
    "Evaluation",
    "evaluate",
    "evaluate_lists",
    "evaluate_runs",
    "judged_coverage",
    "to_frame",
    "to_lists",
    "warn_of_coverage",
]

EMPTY = ("skip", "zero", "one")
_CUTOFF = 10  # k of Judged@k if no measure has a cutoff


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values of measures for each query; the measures keep the names that they were requested by.

    ``values[name]`` has one number per query, NaN where the measure has no value and such queries are skipped.
    ``empty[name]`` marks the queries with nothing relevant, whatever the policy was, and ``no_choice[name]`` those
    whose candidates score the same in every order, which MM, EM, DB and UL2 are not defined for. ``bounds[name]`` has
    worst, expected and best of the candidates' rankings where they were requested, and ``complete[name]`` the value of
    the run read as a complete ranking of the candidates, which always lies between them. ``coverage`` says how
    far judgments and run cover each other, and ``policy`` which candidates were used and how ties, empty and missing
    queries were treated. ``p_values[name]`` has the p-values of each query against random rankings by the plain
    measures, where they were requested; `rankbound.against_random` summarizes them.
    """

    query_ids: Any
    values: Mapping[str, NDArray[np.float64]]
    empty: Mapping[str, NDArray[np.bool_]]
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    policy: Mapping[str, str] = field(default_factory=dict)
    no_choice: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    complete: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    p_values: Mapping[str, PValues] = field(default_factory=dict)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return tuple(self.values)

    @property
    def queries(self) -> int:
        """Queries that were evaluated, empty ones included."""
        return len(self.query_ids)

    @property
    def empty_queries(self) -> int:
        """Queries that are empty for at least one of the measures."""
        return int(np.any([*self.empty.values()], axis=0).sum()) if self.empty else 0

    @property
    def no_choice_queries(self) -> int:
        """Queries whose candidates score the same in every order for at least one measure whose bounds are known."""
        return int(np.any([*self.no_choice.values()], axis=0).sum()) if self.no_choice else 0

    @property
    def candidates(self) -> str:
        """Which documents bounds and normalized measures are about: "judged", "returned", a file, or "explicit"."""
        return self.policy.get("candidates", "judged")

    @property
    def missing_queries(self) -> int:
        """Queries that are judged but not in the run."""
        return self.coverage.missing_queries

    @property
    def unjudged_queries(self) -> int:
        """Queries that are in the run but not judged."""
        return self.coverage.unjudged_queries

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on what makes the values doubtful: a run without any judged document."""
        return () if self.coverage.warning is None else (self.coverage.warning,)

    def counted_queries(self) -> dict[str, int]:
        """Queries that each mean is over."""
        return {name: int(np.count_nonzero(~np.isnan(value))) for name, value in self.values.items()}

    def mean(self) -> dict[str, float]:
        """Mean of each measure over the queries that count; NaN only where no query counts.

        Some measures are aggregated as trec_eval does: counts such as NumRet are summed, and
        ``AP(mean='geometric')`` is the geometric mean of max(AP, 0.00001).
        """
        return {name: _aggregate(name, value[~np.isnan(value)]) for name, value in self.values.items()}

    def mean_bounds(self) -> dict[str, dict[str, float]]:
        """Worst, expected, best and the value as a complete ranking, in the mean over the queries that count."""
        means = {}
        for name, bounds in self.bounds.items():
            counted = ~np.isnan(self.values[name])
            columns = {side: getattr(bounds, side) for side in _SIDES}
            if name in self.complete:
                columns["complete"] = self.complete[name]
            means[name] = {
                side: float(array[counted].mean()) if counted.any() else float("nan") for side, array in columns.items()
            }
        return means

    def interval(
        self, confidence: float = 0.95, *, method: str = "bca", resamples: int = 10_000, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Confidence interval of each mean over the queries that count: (low, high), by the policy of `compare`.

        ``method`` is "bca" (bias-corrected and accelerated bootstrap), "percentile" (bootstrap) or "t" (Student's); see
        `rankbound.Inference`. (NaN, NaN) with fewer than two queries; fewer than 10 raise an `InferenceWarning`.

        >>> labels = {f"q{i}": {"a": 1, "b": 0} for i in range(20)}
        >>> run = {f"q{i}": {"a": 0.5, "b": 0.9 if i % 2 else 0.1} for i in range(20)}
        >>> low, high = evaluate(labels, run, "RR").interval(method="t")["RR"]
        >>> round(low, 4), round(high, 4)  # 0.75 -+ 2.093 * 0.2565 / sqrt(20)
        (0.63, 0.87)
        """
        from rankbound.analysis.inference import Inference, warn

        policy = Inference(confidence=confidence, interval=method, resamples=resamples, seed=seed)
        intervals, counts = {}, {}
        for name, value in self.values.items():
            if _aggregation(name) != "mean":  # sums and geometric means have no interval of a mean
                continue
            counted = value[~np.isnan(value)]
            low, high = policy.intervals(counted[:, None])[:, 0] if len(counted) else (np.nan, np.nan)
            intervals[name], counts[name] = (float(low), float(high)), len(counted)
        warn(policy.notes(counts))
        return intervals

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per query: qid, a column per measure (null where skipped), and the bounds if there are any.

        With bounds there is also the value of the run read as a complete ranking of the candidates: "AP complete".
        """
        import polars as pl

        columns = {"qid": pl.Series(self.query_ids)}
        for name, value in self.values.items():
            columns[name] = pl.Series(value, nan_to_null=True)
        for name, bounds in self.bounds.items():
            for side in _SIDES:
                columns[f"{name} {side}"] = pl.Series(getattr(bounds, side))
            if name in self.complete:
                columns[f"{name} complete"] = pl.Series(self.complete[name])
        for name, p in self.p_values.items():
            columns[f"{name} p better"], columns[f"{name} p worse"] = pl.Series(p.better), pl.Series(p.worse)
        return pl.DataFrame(columns)

    def to_pandas(self) -> Any:
        """`per_query` as a pandas frame."""
        import pandas as pd

        return pd.DataFrame({name: column.to_list() for name, column in self.per_query.to_dict().items()})

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON."""
        summary: dict[str, Any] = {
            "mean": self.mean(),
            "queries": self.queries,
            "empty_queries": self.empty_queries,
            "no_choice_queries": self.no_choice_queries,
            "counted_queries": self.counted_queries(),
            "missing_queries": self.missing_queries,
            "unjudged_queries": self.unjudged_queries,
            "coverage": self.coverage.to_dict(),
            "warnings": list(self.warnings),
            **self.policy,
        }
        return summary | ({"bounds": self.mean_bounds()} if self.bounds else {})

    def __repr__(self) -> str:
        means = ", ".join(f"{name}={mean:.4f}" for name, mean in self.mean().items())
        return f"Evaluation({means}; queries={self.queries}, empty={self.empty_queries})"


_SIDES = ("worst", "expected", "best")
_LEAST = 0.00001  # trec_eval's floor under values of a geometric mean


def _aggregation(name: str) -> str:
    measure = parse_measure(name)
    return measure.definition.aggregate(measure) if measure.bounding == "none" else "mean"


def _aggregate(name: str, values: NDArray[np.float64]) -> float:
    aggregation = _aggregation(name)
    if aggregation == "sum":
        return float(values.sum())
    if len(values) == 0:
        return float("nan")
    if aggregation == "geometric":
        return float(np.exp(np.log(np.maximum(values, _LEAST)).mean()))
    return float(values.mean())


def evaluate(
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
) -> Evaluation:
    """Evaluate a run against judgments, or `Lists` that carry scores.

    Parameters
    ----------
    qrels, run:
        Paths of TREC files, ``{query: {document: number}}`` dicts, or polars or pandas frames with the columns ``qid,
        docid`` and ``label`` or ``score``. Or give scored Lists as the only data, ``evaluate(lists, measures=[...])``,
        or the path of a parquet file with ``qid, label, score``. A run or scored table in a parquet file is read
        chunk by chunk, so that it may be larger than memory; the rows of a query must stand together there.
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

    Warns
    -----
    CoverageWarning
        If judgments and run have no document in common in any shared query.

    >>> qrels = {"q1": {"a": 1, "b": 0, "c": 0}, "q2": {"a": 0, "b": 1}}
    >>> run = {"q1": {"a": 0.2, "b": 0.9, "c": 0.1}, "q2": {"a": 0.1, "b": 0.8}}
    >>> evaluate(qrels, run, ["RR", "MM(RR)"])
    Evaluation(RR=0.7500, MM(RR)=0.6250; queries=2, empty=0)
    """
    result = _evaluate(
        qrels, run, measures, ties=ties, empty=empty, missing=missing, judged_only=judged_only, depth=depth,
        bounds=bounds, candidates=candidates, judged_outside=judged_outside, against_random=against_random,
        references=references,
    )  # fmt: skip
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
) -> Evaluation:
    """`evaluate` without its warnings."""
    scored = isinstance(qrels, Lists)
    if scored:
        if measures is None:
            measures = run
        elif run is not None:
            raise ArgumentError("Lists carry their scores; evaluate(lists, measures=[...]) takes no run")
    elif run is None and not _is_parquet(qrels):
        raise ArgumentError("evaluate needs qrels and a run, or Lists that carry scores")
    if measures is None:
        raise ArgumentError("evaluate needs measures, such as ['nDCG@10', 'AP']")
    requested = _requested(measures)  # a wrong name is reported before large files are read
    policy: dict[str, Any] = {"missing": missing, "judged_only": judged_only}
    judgments_of_references = None if scored or run is None else qrels
    reference_scores = references_of(judgments_of_references, references, requested, ties=ties, depth=depth, **policy)
    chosen = CandidateSource(check_rule(candidates)) if scored else read_candidates(candidates, judged_outside)
    if scored:
        chunks: Iterable[Lists] = (qrels,)
    elif run is None:
        chunks = table_chunks.scored_chunks(qrels, candidates=chosen)
    elif _is_parquet(run):
        judgments = to_frame(qrels, "label", column=chosen.column)
        chunks = table_chunks.RunChunks(judgments, run, candidates=chosen, **policy)
    else:
        chunks = (to_lists(qrels, run, keep_ids=ties == "docid", candidates=chosen, **policy),)
    results, coverage = [], Coverage()
    for lists in chunks:
        result = evaluate_lists(
            lists, requested, ties=ties, empty=empty, depth=depth, bounds=bounds, candidates=chosen.rule,
            against_random=against_random, references=reference_scores,
        )  # fmt: skip
        results.append(result)
        coverage += result.coverage
    if isinstance(chunks, table_chunks.RunChunks):  # a chunk does not know the queries of the others
        known = chunks.coverage
        coverage = replace(coverage, missing_queries=known.missing_queries, unjudged_queries=known.unjudged_queries)
    described = {"candidates": candidates if scored else chosen.name, "ties": ties, "empty": empty, "missing": missing}
    result = _concatenated(results)
    if reference_scores is not None:
        reference_scores.check_covers(result.query_ids)
        described["references"] = reference_scores.describe()
    return replace(result, coverage=coverage, policy=described)


def evaluate_runs(qrels: Any, runs: Mapping[str, Any], measures: Any, **options: Any) -> dict[str, Evaluation]:
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
    if several and not isinstance(qrels, Mapping):
        judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    if references is not None:  # they are evaluated once for all runs
        policy = {key: options[key] for key in ("ties", "missing", "judged_only", "depth") if key in options}
        options["references"] = references_of(judgments, references, requested, **policy)
    results = {}
    for name, run in runs.items():
        try:
            results[name] = _evaluate(judgments, run, requested, candidates=source, **options)
        except CandidatesError:
            raise
        except DataError as error:
            files = (f"{name}:", f"{qrels}:" if isinstance(qrels, (str, PathLike)) else f"{name}:")
            raise error if str(error).startswith(files) else DataError(f"{name}: {error}") from error
    warn_of_coverage([f"{name}: {text}" for name, result in results.items() for text in result.warnings])
    return results


def warn_of_coverage(sentences: Iterable[str], stacklevel: int = 3) -> None:
    """Issue a `CoverageWarning` for each sentence."""
    for sentence in sentences:
        warnings.warn(sentence, CoverageWarning, stacklevel=stacklevel)


def evaluate_references(
    qrels: Any,
    references: Any,
    measures: Any,
    *,
    ties: str = "average",
    missing: str = "ignore",
    judged_only: bool = False,
    depth: int | None = None,
) -> ReferenceScores:
    """Evaluate reference runs, by which measures such as ``STD(nDCG@10)`` are standardized.

    ``evaluate(..., references=...)`` takes the result in place of the runs, and its method ``save`` writes a file that
    can be published.

    Parameters
    ----------
    qrels:
        Judgments, as `evaluate` takes them; None if the references are `Lists` that carry scores, or parquet files with
        ``qid, label, score``.
    references:
        At least two runs, as ``{name: run}`` or a sequence. Scores that were computed before, or the path of a
        ``.json`` file of them, are returned if they have all measures.
    measures:
        Plain measures, or standardized ones, of which the plain measure is taken.
    ties, missing, judged_only, depth:
        As in `evaluate`.

    >>> qrels = {"q": {"a": 1, "b": 0, "c": 0}}
    >>> runs = {"good": {"q": {"a": 3, "b": 2, "c": 1}}, "bad": {"q": {"a": 1, "b": 2, "c": 3}}}
    >>> evaluate_references(qrels, runs, "RR").values["RR"].round(4).tolist()
    [[1.0], [0.3333]]
    """
    plain = {str(measure.plain): measure.plain for measure in _requested(measures).values()}
    if isinstance(references, (str, PathLike)):
        if not str(references).endswith(".json"):
            raise ArgumentError(f"references must be runs, or a .json file of their scores, got {str(references)!r}")
        references = ReferenceScores.load(references)
    if isinstance(references, ReferenceScores):
        references.check(plain.values())
        return references
    runs = _reference_runs(references)
    options: dict[str, Any] = {"ties": ties, "missing": missing, "judged_only": judged_only, "depth": depth}
    if qrels is None:
        results = {name: evaluate(run, measures=plain, **options) for name, run in runs.items()}
    else:
        results = evaluate_runs(qrels, runs, plain, **options)
    query_ids = list(dict.fromkeys(qid for result in results.values() for qid in np.asarray(result.query_ids).tolist()))
    column = {qid: index for index, qid in enumerate(query_ids)}
    scores = {name: np.full((len(runs), len(query_ids)), np.nan) for name in plain}
    for row, result in enumerate(results.values()):
        columns = [column[qid] for qid in np.asarray(result.query_ids).tolist()]
        for name in plain:
            scores[name][row, columns] = result.values[name]
    return ReferenceScores(tuple(runs), tuple(query_ids), scores)


def references_of(
    qrels: Any, references: Any, measures: Mapping[str, Measure], **options: Any
) -> ReferenceScores | None:
    """The scores that the standardized measures need; None if there are no such measures and no references."""
    standardized = {name: measure for name, measure in measures.items() if measure.is_standardized}
    if references is None:
        for measure in standardized.values():
            raise missing_references(measure)
        return None
    if not standardized:
        raise ArgumentError(
            f"references are for standardized measures, such as STD(nDCG@10); got {', '.join(measures)}"
        )
    return evaluate_references(qrels, references, standardized, **options)


def _reference_runs(references: Any) -> dict[str, Any]:
    """Reference runs by name; those of a sequence are called by their path or their number."""
    if isinstance(references, Mapping):
        runs = {str(name): run for name, run in references.items()}
    elif isinstance(references, Sequence):
        runs = {
            str(run) if isinstance(run, (str, PathLike)) else f"reference {number}": run
            for number, run in enumerate(references, start=1)
        }
    else:
        raise ArgumentError(f"references must be runs by name or a list of runs, got {type(references).__name__}")
    if len(runs) < LEAST_REFERENCES:
        raise ArgumentError(f"references must be at least {LEAST_REFERENCES} different runs, got {len(runs)}")
    return runs


def _concatenated(results: list[Evaluation]) -> Evaluation:
    """One evaluation of the queries of several."""
    if len(results) == 1:
        return results[0]
    first = results[0]
    return Evaluation(
        np.concatenate([result.query_ids for result in results]),
        {name: np.concatenate([result.values[name] for result in results]) for name in first.values},
        {name: np.concatenate([result.empty[name] for result in results]) for name in first.empty},
        {
            name: Bounds(*(np.concatenate([getattr(result.bounds[name], side) for result in results])
                           for side in _SIDES))
            for name in first.bounds
        },
        no_choice={name: np.concatenate([result.no_choice[name] for result in results]) for name in first.no_choice},
        complete={name: np.concatenate([result.complete[name] for result in results]) for name in first.complete},
        p_values={name: PValues.concatenated([result.p_values[name] for result in results]) for name in first.p_values},
    )  # fmt: skip


def evaluate_lists(
    lists: Lists,
    measures: Any,
    *,
    ties: str = "average",
    empty: str = "skip",
    depth: int | None = None,
    bounds: bool = False,
    candidates: str = "judged",
    against_random: bool = False,
    references: ReferenceScores | None = None,
) -> Evaluation:
    """Evaluate scored lists; see `evaluate`. ``measures`` can be the result of `parse_measures` as well."""
    if empty not in EMPTY:
        raise ArgumentError(f"empty must be one of {', '.join(EMPTY)}, got {empty!r}")
    requested = _requested(measures)
    if len(lists) == 0:
        raise DataError("there are no queries to evaluate")
    run = RunValues(lists, ties=ties, depth=depth, candidates=candidates, references=references)
    result: dict[str, NDArray[np.float64]] = {}
    is_empty, no_choice = {}, {}
    bounds_by_name, complete = {}, {}
    for name, measure in requested.items():
        stand_in = {"skip": np.nan, "zero": 0.0, "one": 1.0}[empty]
        result[name] = np.where(run.has_value(measure), run.value(measure), stand_in)
        is_empty[name] = run.is_empty(measure)
        if (measure.bounding != "none" and not measure.is_standardized) or bounds:
            no_choice[name] = run.has_no_choice(measure)
        if measure.bounding == "none" and bounds:
            difficulty = run.difficulty(measure)
            bounds_by_name[name] = Bounds(difficulty.worst, difficulty.expected, difficulty.best)
            complete[name] = run.complete(measure)
    policy = {"candidates": candidates if lists.candidates is None else "explicit", "ties": ties, "empty": empty}
    return Evaluation(
        lists.query_ids,
        result,
        is_empty,
        bounds_by_name,
        judged_coverage(lists, run.plain, requested.values()),
        policy,
        no_choice=no_choice,
        complete=complete,
        p_values=_p_values(run, requested) if against_random else {},
    )


def _p_values(run: RunValues, requested: Mapping[str, Measure]) -> dict[str, PValues]:
    """p-values by each plain measure, under its requested name where it was requested without a bounding."""
    names = {measure.plain: str(measure.plain) for measure in requested.values()}
    names |= {measure: name for name, measure in requested.items() if measure.bounding == "none"}
    return {name: run.p_values(measure) for measure, name in names.items()}


def judged_coverage(
    lists: Lists, plain_values: Callable[[Measure], NDArray[np.float64]], measures: Iterable[Measure]
) -> Coverage:
    """The coverage of lists with Judged@k, where k is the smallest cutoff of the measures, or 10 if none has one.

    ``plain_values`` computes a plain measure for the ranking of the lists. Nothing is ranked for lists in which every
    document is judged: their Judged@k is 1.
    """
    coverage = lists.coverage
    if coverage is None:  # not from judgments and a run: every query is shared
        depths = judged_depths = lists.sizes if lists.depths is None else lists.depths
        if lists.judged is not None:
            query = lists.query_of_item
            returned = np.arange(len(query)) - lists.offsets[query] < depths[query]
            judged_depths = np.bincount(query[returned & lists.judged], minlength=len(lists))
        coverage = Coverage(shared_queries=len(lists)).with_documents(depths, judged_depths)
    cutoff = min((measure.cutoff for measure in measures if measure.cutoff is not None), default=_CUTOFF)
    fractions = plain_values(parse_measure(f"Judged@{cutoff}"))
    return replace(coverage, cutoff=cutoff, sum_at_cutoff=float(fractions.sum()))


def _requested(measures: Any) -> Mapping[str, Measure]:
    return measures if isinstance(measures, Mapping) else parse_measures(measures)


def to_lists(
    qrels: Any,
    run: Any,
    *,
    missing: str = "ignore",
    judged_only: bool = False,
    keep_ids: bool = True,
    candidates: CandidateSource | None = None,
) -> Lists:
    """Bring judgments and a run together, whatever they come as."""
    from rankbound.data import judged, trec

    source = candidates or CandidateSource()
    policy: dict[str, Any] = {"missing": missing, "judged_only": judged_only}
    if source.is_rule and isinstance(qrels, Mapping) and isinstance(run, Mapping):
        return Lists.from_dicts(qrels, run, keep_ids=keep_ids, **policy)
    if source.column is None and _is_trec(qrels) and _is_trec(run):
        return trec.lists_from_trec(qrels, run, candidates=source, **policy)
    judgments, source = source.take_column(to_frame(qrels, "label", column=source.column))
    return judged.from_frames(judgments, to_frame(run, "score"), candidates=source, **policy)


def _is_parquet(source: Any) -> bool:
    return isinstance(source, (str, PathLike)) and str(source).endswith(".parquet")


def _is_trec(source: Any) -> bool:
    return isinstance(source, (str, PathLike)) and not str(source).endswith((".parquet", ".csv", ".tsv"))


def to_frame(source: Any, number: str, column: str | None = None) -> pl.DataFrame:
    """A frame with qid, docid and ``number`` (label or score): from a dict, a TREC file, or any frame.

    ``column`` names a further column, which marks candidates; the result has it as ``candidate``.
    """
    import polars as pl

    from rankbound.data import frames, trec

    if column is not None and (isinstance(source, Mapping) or _is_trec(source)):
        raise ArgumentError(f"candidates='column:{column}' needs judgments in a frame, a csv or a parquet file")
    if isinstance(source, Mapping):
        check_dicts(**{f"a dict of {number}s": source})
        rows = [(q, d, value) for q, documents in source.items() for d, value in documents.items()]
        try:
            return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise DataError(f"a dict of {number}s must have ids and numbers of one kind each, got: {error}") from error
    if _is_trec(source):
        return trec.read_qrels(source) if number == "label" else trec.read_run(source)
    frame = frames.as_polars(source)
    table = frames.rename_columns(frame, {}, required=("qid", "docid", number))
    if column is None:
        return table
    frames.check_mark(column, frame.schema)
    return table.with_columns(frame[column].fill_null(value=False).alias("candidate"))
