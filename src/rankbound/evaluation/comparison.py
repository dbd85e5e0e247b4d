"""compare: is one run better than another, by how much, on which queries, and could it be noise?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from rankbound.data.candidates import read_candidates
from rankbound.data.json_lines import check_same_judgments, is_json_lines
from rankbound.data.large import is_in_parts
from rankbound.difficulty import QUERY_TYPES, query_type_rule
from rankbound.difficulty.candidates import check_rule
from rankbound.difficulty.unknown.differences import RunsWithUnknown, check_difference
from rankbound.display import page_of, pandas_frame, plain_values, plot_of, table_of
from rankbound.errors import ArgumentError
from rankbound.evaluation import Evaluation
from rankbound.evaluation.alignment import align_evaluations, align_lists, align_runs, lists_on_shared_queries
from rankbound.evaluation.group_tests import GroupDifference, group_differences
from rankbound.evaluation.groups import QueryGroups, read_groups
from rankbound.evaluation.inference import (
    FEWEST_FOR_INTERVALS,
    TESTS,
    Inference,
    caution_about_wilcoxon,
    group_letters,
    mean_intervals,
    warn,
)
from rankbound.evaluation.intervals import effect_size_interval_columns
from rankbound.evaluation.label_uncertainty import given_grades, with_grades
from rankbound.evaluation.large import Settings
from rankbound.evaluation.leaderboards import RankInterval, rank_intervals
from rankbound.evaluation.lists import warn_of_coverage
from rankbound.evaluation.runs import are_runs_by_name, default_measures, evaluate_run
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better
from rankbound.evaluation.significance import effect_size_columns, smallest_randomization_p
from rankbound.evaluation.unjudged import Decision, decide, ranges_of_runs
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measures
from rankbound.protocol import DEFAULT_MEASURES, MEASURES_OF_UNJUDGED, Protocol, ProtocolFields, as_protocol

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.report.display.plot import Plot


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure, one pair of runs; ``difference`` is the mean of ``run`` minus the mean of ``baseline``.

    ``wins`` counts the queries on which ``run`` is better, whichever direction is better for the measure. ``p_t``,
    ``p_wilcoxon`` and ``p_randomization`` are the p-values of the three tests, and the names that end in ``_holm`` the
    same after Holm's correction over all rows of the comparison that have a p-value. ``p_value`` is that of the test
    that the policy names, and ``p_corrected`` the same after the policy's correction; ``ci_low_corrected`` and
    ``ci_high_corrected`` are the ends of the interval at the corrected level (`Inference.corrected_alpha`).
    ``minimum_detectable_difference`` is the smallest true difference that a t test on these queries would find with
    the policy's power, and ``minimum_detectable_difference_corrected`` the same at the corrected level.

    Means, difference, interval and p-values are None where no query counts; the interval also with a single query;
    ``effect_size`` (mean over standard deviation of the differences) and its interval where there is no spread.
    """

    measure: str
    baseline: str
    run: str
    queries: int
    mean_baseline: float | None
    mean_run: float | None
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    effect_size: float | None
    effect_size_low: float | None
    effect_size_high: float | None
    p_t: float | None
    p_t_holm: float | None
    p_wilcoxon: float | None
    p_wilcoxon_holm: float | None
    p_randomization: float | None
    p_randomization_holm: float | None
    wins: int
    ties: int
    losses: int
    p_value: float | None
    p_corrected: float | None
    ci_low_corrected: float | None
    ci_high_corrected: float | None
    minimum_detectable_difference: float | None
    minimum_detectable_difference_corrected: float | None


@dataclass(frozen=True, slots=True)
class TypeDifference:
    """The difference on the queries of one type. No p-values: types depend on the outcome, so tests would mislead."""

    measure: str
    baseline: str
    run: str
    type: str
    queries: int
    mean_baseline: float
    mean_run: float
    difference: float
    ci_low: float | None
    ci_high: float | None
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`: a row per measure and pair of runs, and the same by type of query.

    ``columns`` holds the rows column by column; ``notes`` are sentences on what limits the conclusions. ``decisions``
    say, for ``unjudged="range"``, what the labels of unjudged documents could change, for each measure and pair, and
    ``label_ranges`` are the smallest and largest mean over these labels by run and measure, as `Evaluation.range`.
    """

    scores: ScoreMatrix
    inference: Inference
    pairs: tuple[tuple[int, int], ...]
    columns: Mapping[str, Sequence[Any] | NDArray[Any]]
    notes: tuple[str, ...]
    groups: QueryGroups | None = None
    decisions: tuple[Decision, ...] = ()
    label_ranges: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of the runs."""
        return self.scores.systems

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures, as they were requested."""
        return self.scores.measures

    @property
    def queries(self) -> int:
        """Queries that all runs have."""
        return len(self.scores)

    @property
    def left_out(self) -> int:
        """Queries that some runs have and others lack."""
        return self.scores.left_out

    @property
    def coverage(self) -> dict[str, Coverage]:
        """How far each run and the judgments cover each other; its documents are those of the compared queries."""
        return self.scores.coverage_by_system

    @property
    def never_returned(self) -> int | None:
        """Queries that are judged and in none of the runs; None where this is unknown."""
        return self.scores.never_returned

    @property
    def signature(self) -> dict[str, str]:
        """The signature of each measure, as of an `Evaluation`; empty if the runs were evaluated by different ones."""
        return self.scores.signature

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on runs whose values are doubtful, because they have no judged document."""
        return self.scores.coverage_warnings()

    @property
    def empty_queries(self) -> int:
        """Shared queries that do not count for at least one of the measures."""
        return int((~np.all([self.scores.counted(name) for name in self.measures], axis=0)).sum())

    @property
    def baseline(self) -> str | None:
        """The run that the others are compared with; None where all pairs are compared."""
        first = {baseline for baseline, _ in self.pairs}
        return self.runs[first.pop()] if len(first) == 1 and len(self.pairs) == len(self.runs) - 1 else None

    def mean(self) -> dict[str, dict[str, float | None]]:
        """Mean of every measure for each run, over the queries that count for all runs."""
        return {
            run: {name: _number(self.scores.means(name)[row]) for name in self.measures}
            for row, run in enumerate(self.runs)
        }

    @cached_property
    def intervals(self) -> dict[str, dict[str, tuple[float | None, float | None]]]:
        """Confidence interval of every mean, by run and measure."""
        ends = {name: mean_intervals(self.scores, name, 0, self.inference) for name in self.measures}
        return {
            run: {name: (_number(ends[name][0, row]), _number(ends[name][1, row])) for name in self.measures}
            for row, run in enumerate(self.runs)
        }

    @cached_property
    def letters(self) -> dict[str, dict[str, str]]:
        """For each measure the letters of the runs, the best first: runs that share a letter do not differ.

        All pairs of runs are tested, whether or not they have a row, and corrected over all pairs and measures.
        """
        order = {(0, name): self._best_first(name) for name in self.measures}
        letters = group_letters(self.scores, self.inference, order)
        return {name: {self.runs[row]: text for row, text in letters[0, name].items()} for name in self.measures}

    @cached_property
    def rank_intervals(self) -> dict[str, tuple[RankInterval, ...]]:
        """For each measure the rank of every run with its interval, the best first, by tests of all pairs.

        Each measure is corrected by itself, over all pairs of runs; see `rankbound.evaluation.leaderboards`.
        """
        return {name: rank_intervals(self.scores, name, self.inference) for name in self.measures}

    def _best_first(self, measure: str) -> list[int]:
        means = self.scores.means(measure)
        return [int(row) for row in np.argsort(means if is_lower_better(measure) else -means, kind="stable")]

    @cached_property
    def rows(self) -> tuple[Difference, ...]:
        """A row per measure and pair of runs."""
        names = [field.name for field in fields(Difference)]
        columns = [_plain_list(self.columns[name]) for name in names]
        return tuple(Difference(*values) for values in zip(*columns, strict=True))

    @cached_property
    def by_type(self) -> tuple[TypeDifference, ...]:
        """A row per measure, pair of runs and type of query."""
        return _rows_by_type(self.scores, self.pairs, self.inference)

    @cached_property
    def by_group(self) -> tuple[GroupDifference, ...]:
        """A row per measure, pair of runs and group of queries, the largest loss first; empty without groups."""
        return () if self.groups is None else group_differences(self.scores, self.pairs, self.groups, self.inference)

    @cached_property
    def table(self) -> pl.DataFrame:
        """The rows as a frame."""
        import polars as pl

        columns = {name: _plain_list(self.columns[name]) for name in _schema(Difference)}
        return pl.DataFrame(columns, schema=_schema(Difference))

    @cached_property
    def type_table(self) -> pl.DataFrame:
        """The rows by type of query as a frame."""
        import polars as pl

        return pl.DataFrame([asdict(row) for row in self.by_type], schema=_schema(TypeDifference))

    def summary(self, measure: str | None = None) -> pl.DataFrame:
        """One row per run, the best first, by one measure (the first one by default).

        Columns: run, mean, ci_low, ci_high, letters, versus, difference, difference_low, difference_high, p_corrected.
        Runs are compared with the baseline or, where all pairs were compared, with the best run; the difference is run
        minus versus, and its interval is at the corrected level.
        """
        import polars as pl

        name = self.measures[0] if measure is None else measure
        if name not in self.measures:
            raise ArgumentError(f"measure must be one of {', '.join(self.measures)}, got {measure!r}")
        order = self._best_first(name)
        versus = self.runs[order[0]] if self.baseline is None else self.baseline
        tests = {
            (row["baseline"], row["run"]): row
            for row in self.table.filter(
                (pl.col("measure") == name) & ((pl.col("baseline") == versus) | (pl.col("run") == versus))
            ).iter_rows(named=True)
        }
        means = self.scores.means(name)
        rows = []
        for index in order:
            run = self.runs[index]
            low, high = self.intervals[run][name]
            row: dict[str, Any] = {"run": run, "mean": _number(means[index]), "ci_low": low, "ci_high": high}
            row |= {"letters": self.letters[name][run], "versus": None if run == versus else versus}
            if (test := tests.get((versus, run))) is not None:
                row |= {"difference": test["difference"], "difference_low": test["ci_low_corrected"]}
                row |= {"difference_high": test["ci_high_corrected"], "p_corrected": test["p_corrected"]}
            elif (test := tests.get((run, versus))) is not None:  # the pair the other way round
                row |= {"difference": _negative(test["difference"]), "p_corrected": test["p_corrected"]}
                row |= {"difference_low": _negative(test["ci_high_corrected"])}
                row |= {"difference_high": _negative(test["ci_low_corrected"])}
            rows.append(row)
        words = ("run", "letters", "versus")
        names = ("run", "mean", "ci_low", "ci_high", "letters", "versus", "difference", "difference_low",
                 "difference_high", "p_corrected")  # fmt: skip
        return pl.DataFrame(rows, schema={key: pl.String if key in words else pl.Float64 for key in names})

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per measure and query: measure, qid, type, the value of each run; null where it does not count."""
        import polars as pl

        parts = []
        for name, value in self.scores.values.items():
            columns = {
                "measure": pl.Series([name] * len(self.scores), dtype=pl.String),
                "qid": pl.Series(self.scores.query_ids),
                "type": pl.Series(self.scores.query_types(name), dtype=pl.String).replace("", None),
            }
            for run, row in zip(self.runs, value, strict=True):
                columns[run] = pl.Series(row, nan_to_null=True)
            parts.append(pl.DataFrame(columns))
        return pl.concat(parts)

    def to_pandas(self) -> Any:
        """`table`, a row per measure and pair of runs, as a pandas frame."""
        return pandas_frame(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values per query, ready for JSON; None in place of NaN."""
        summary = {
            "runs": list(self.runs),
            "mean": self.mean(),
            "intervals": {run: {name: list(ends) for name, ends in of.items()} for run, of in self.intervals.items()},
            "queries": self.queries,
            "empty_queries": self.empty_queries,
            "left_out_queries": self.left_out,
            "candidates": self.scores.candidates,
            "never_returned_queries": self.never_returned,
            "coverage": {run: coverage.to_dict() for run, coverage in self.coverage.items()},
            **({"references": self.scores.standardized_by} if self.scores.standardized_by else {}),
            "signature": self.signature,
            "confidence": self.inference.confidence,
            "resamples": self.inference.resamples,
            "seed": self.inference.seed,
            "inference": self.inference.to_dict(),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "letters": self.letters,
            "rank_intervals": {name: [asdict(row) for row in rows] for name, rows in self.rank_intervals.items()},
            "differences": self.table.to_dicts(),
            "type_rule": query_type_rule(self.scores.type_quota),
            "by_type": self.type_table.to_dicts(),
        }
        if self.decisions:
            summary["range"] = {run: {name: list(e) for name, e in of.items()} for run, of in self.label_ranges.items()}
            summary["decisions"] = [row.to_dict() for row in self.decisions]
        summary |= {"by_group": [asdict(row) for row in self.by_group]} if self.groups is not None else {}
        return plain_values(summary)  # type: ignore[no-any-return]

    def to_markdown(self) -> str:
        """The differences with intervals and p-values as a Markdown table."""
        return table_of(self, complete=True).to_markdown()

    def to_latex(self) -> str:
        """The differences with intervals and p-values as a LaTeX table for the package booktabs."""
        return table_of(self, complete=True).to_latex()

    def page(
        self, path: str | PathLike[str], *, title: str = "Comparison of runs", about: Mapping[str, str] | None = None
    ) -> Path:
        """Write a page to one HTML file: findings in words, tables, figures, and all queries; return its path.

        The page needs the extra ``report``. ``about`` is metadata for its end. The values of the queries against random
        rankings are on it if the comparison was made with ``against_random=True``.
        """
        return page_of(self, path, title=title, about=about)

    def plot(self, measure: str | Measure | None = None) -> Plot:
        """Plot the differences, for notebooks and files; needs the extra ``report``.

        Without a measure these are the differences of the means with their intervals, by all measures. With the name
        of a measure they are the differences of each query, the greatest first. DataError if no query counts,
        ArgumentError for a measure that was not compared.
        """
        return plot_of(self, measure=measure)

    def _repr_html_(self) -> str:
        return table_of(self).to_html()

    def __repr__(self) -> str:
        return f"Comparison(runs={list(self.runs)}, measures={list(self.measures)}, queries={self.queries})"


def compare(
    *runs: Any,
    qrels: Any = None,
    measures: Iterable[str | Measure] | str | Measure | None = None,
    names: Sequence[str] | None = None,
    baseline: int | None = 0,
    protocol: Protocol | None = None,
    type_quota: float | None = None,
    against_random: bool = False,
    groups: Any = None,
    inference: Inference | None = None,
    confidence: float | None = None,
    resamples: int | None = None,
    seed: int | None = None,
    cluster: Any = None,
    shuffle: bool = True,
    scratch: Any = None,
    **fields: Unpack[ProtocolFields],
) -> Comparison:
    """Compare two or more runs on the queries that all of them have.

    Parameters
    ----------
    runs, qrels:
        Runs as paths, dicts or frames with the judgments in ``qrels``; or, without qrels, `Lists` that carry scores,
        or results of `evaluate`; or files of JSON lines, which have the same judgments. One argument ``{name: run}``
        names the runs. The values are those of `evaluate`.
    measures:
        Names such as ``"nDCG@10"``, ``"UL2(nDCG@10)"``; by default those of `evaluate`, and for evaluations those that
        they have in common.
    names:
        Names of the runs; by default the names of their files, or "run 1", "run 2", ...
    baseline:
        Index of the run that the others are compared with; None compares all pairs.
    protocol, fields:
        As in `evaluate`; not for evaluations, which have their values already. With ``candidates="returned"`` the runs
        are compared with rankings of different documents.
    type_quota:
        Types of queries by this quota instead of by their gain, see `rankbound.query_types`.
    against_random:
        Add p-values against random rankings by the first measure to ``scores`` of the result, for its page; not for
        evaluations.
    groups:
        Groups of queries: ``{query: group}``, or a table with ``qid`` and a column per attribute, for
        `Comparison.by_group`.
    inference:
        How intervals and p-values are computed, see `Inference`.
    confidence, resamples, seed:
        Replace the settings of the same names in ``inference``.
    cluster, shuffle, scratch:
        Workers for runs and judgments that are parquet tables in parts, and how these are divided; see `evaluate`. The
        values of all queries, but not their documents, are held in memory.

    Warns
    -----
    CoverageWarning
        If a run and the judgments have no document in common in any compared query.
    InferenceWarning
        If a measure counts fewer than 10 queries, if no randomization test can be significant after correction, or if
        the policy's test is that of Wilcoxon and a measure counts more than 1,000 queries.

    >>> qrels = {f"q{i}": {"a": 1, "b": 0, "c": 0} for i in range(10)}
    >>> good, bad = ({q: {"a": a, "b": 0.5, "c": 0.1} for q in qrels} for a in (0.9, 0.3))
    >>> row = compare(bad, good, qrels=qrels, measures="RR").rows[0]
    >>> row.difference, row.wins, row.p_randomization == 2 / 2**10
    (0.5, 10, True)
    """
    protocol = as_protocol(protocol, fields)
    if len(runs) == 1 and are_runs_by_name(runs[0]):
        if names is not None:
            raise ArgumentError("names are for runs without names; {name: run} has its own")
        names, runs = [str(name) for name in runs[0]], tuple(runs[0].values())
    if len(runs) < 2:
        raise ArgumentError(f"compare needs at least two runs, got {len(runs)}")
    if baseline is not None and not 0 <= baseline < len(runs):
        raise ArgumentError(f"baseline must be None or between 0 and {len(runs) - 1}, got {baseline}")
    if qrels is None and all(map(is_json_lines, runs)):
        check_same_judgments(runs)
        qrels = runs[0]
    policy = (inference or Inference()).changed(confidence=confidence, resamples=resamples, seed=seed)
    if measures is None and not all(isinstance(run, Evaluation) for run in runs):
        measures = MEASURES_OF_UNJUDGED if protocol.has_unknown_labels else DEFAULT_MEASURES
        measures = default_measures(qrels) or measures
    requested = [measures] if isinstance(measures, (str, Measure)) else None if measures is None else list(measures)
    if any(isinstance(run, (Lists, Evaluation)) for run in runs) and qrels is not None:
        raise ArgumentError("qrels go with paths, dicts and frames; Lists and evaluations have their labels already")
    titles = run_names(runs) if names is None else _checked_names(names, len(runs))
    if protocol.has_unknown_labels:
        protocol = _check_unjudged(protocol, qrels, runs, cluster)
        for measure in parse_measures(requested).values():
            check_difference(measure)
    if cluster is not None or any(map(is_in_parts, (qrels, *runs))):
        if against_random or protocol.references is not None or requested is None:
            raise ArgumentError("tables in parts are compared by measures, without against_random and references")
        source = read_candidates(protocol.candidates, protocol.judged_outside)
        evaluated = dict(parse_measures(requested))
        evaluated |= {str(measure.plain): measure.plain for measure in [*evaluated.values()]}  # for types of queries
        settings = Settings(evaluated, protocol.changed(candidates=source), bounds=True)
        runs = tuple(
            evaluate_run(qrels, run, settings, cluster=cluster, shuffle=shuffle, scratch=scratch) for run in runs
        )  # fmt: skip
    if all(isinstance(run, Evaluation) for run in runs):
        if protocol.references is not None:
            raise ArgumentError("references go with runs and Lists; evaluations have their values already")
        scores = align_evaluations(runs, requested, names=titles, type_quota=type_quota)
    elif all(isinstance(run, Lists) for run in runs):
        check_rule(protocol.candidates)
        scores = align_lists(
            runs, requested or (), protocol, names=titles, type_quota=type_quota, against_random=against_random
        )
    elif qrels is None:
        raise ArgumentError("compare needs qrels, or runs that are all Lists with scores or all results of evaluate")
    else:
        scores = align_runs(
            qrels, runs, requested or (), protocol, names=titles, data=_data_name(qrels), type_quota=type_quota,
            against_random=against_random,
        )  # fmt: skip
    comparison = compare_scores(scores, None if baseline is None else titles[baseline], policy)
    if groups is not None:
        known = read_groups(groups)
        list(known.masks(comparison.scores.query_ids))  # ids that do not match are reported now
        comparison = replace(comparison, groups=known)
    if protocol.has_unknown_labels:
        lists = runs if qrels is None else lists_on_shared_queries(qrels, runs, protocol.missing)
        ranked = RunsWithUnknown(lists, ties=protocol.ties, depth=protocol.depth, grades=given_grades(protocol))
        chosen = parse_measures(requested)
        decisions = decide(ranked, chosen, titles, comparison.pairs, empty=protocol.empty, alpha=policy.alpha)
        ranges = ranges_of_runs(ranked, chosen, titles, protocol.empty)
        comparison = replace(comparison, decisions=decisions, label_ranges=ranges)
    warn(comparison.notes)
    warn_of_coverage(comparison.warnings)
    return comparison


def _check_unjudged(protocol: Protocol, qrels: Any, runs: Sequence[Any], cluster: Any) -> Protocol:
    """The protocol with the grades of the judgments, or ArgumentError if unjudged documents cannot be compared."""
    if not isinstance(protocol.unjudged, str) or protocol.names_file_of_unjudged:
        raise ArgumentError("compare takes unjudged documents as 'zero' or by a range, not by probabilities")
    if cluster is not None or any(map(is_in_parts, (qrels, *runs))) or any(isinstance(r, Evaluation) for r in runs):
        raise ArgumentError("unjudged='range' needs the documents of the runs, not tables in parts or evaluations")
    if qrels is None:
        return protocol
    return with_grades(protocol, qrels)


def compare_scores(scores: ScoreMatrix, baseline: str | None, policy: Inference) -> Comparison:
    """Compare the systems of a score matrix with one of them, or all pairs of them."""
    scores = scores.with_common_queries()
    pairs = tuple(combinations(range(len(scores.systems)), 2))
    if baseline is not None:
        first = scores.systems.index(baseline)
        pairs = tuple((first, second) for second in range(len(scores.systems)) if second != first)
    columns = _columns(scores, pairs, policy)
    counts = {name: int(scores.counted(name).sum()) for name in scores.measures}
    notes = [*policy.notes(counts), *_note_on_sign_flips(scores, pairs, policy)]
    if policy.test == "wilcoxon" and (caution := caution_about_wilcoxon(counts.values())):
        notes.append(caution)
    return Comparison(scores, policy, pairs, columns, tuple(notes))


# ---- rows ------------------------------------------------------------------------------------------------------------

Pairs = Sequence[tuple[int, int]]


def _columns(scores: ScoreMatrix, pairs: Pairs, policy: Inference) -> dict[str, Any]:
    """The fields of `Difference`, each for all measures and pairs."""
    baselines, systems = np.array(pairs).T
    raw: dict[str, list[NDArray[np.float64]]] = {test: [] for test in TESTS}
    for name in scores.measures:
        d = scores.differences(name, systems, baselines)[scores.counted(name)]
        for test in TESTS:
            raw[test].append(policy.p_values(d, test) if len(d) else np.full(len(pairs), np.nan))
    p = {test: np.concatenate(values) for test, values in raw.items()}
    corrected_alpha = policy.corrected_alpha(p[policy.test])
    parts = [_measure_columns(scores, name, systems, baselines, policy, corrected_alpha) for name in scores.measures]
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    holm = replace(policy, correction="holm")
    for test in TESTS:
        columns |= {f"p_{test}": p[test], f"p_{test}_holm": holm.correct(p[test])}
    columns |= {"p_value": p[policy.test], "p_corrected": policy.correct(p[policy.test])}
    columns["measure"] = [name for name in scores.measures for _ in pairs]
    columns["baseline"] = [scores.systems[first] for first, _ in pairs] * len(scores.measures)
    columns["run"] = [scores.systems[second] for _, second in pairs] * len(scores.measures)
    return columns


def _measure_columns(
    scores: ScoreMatrix,
    measure: str,
    systems: NDArray[np.int64],
    baselines: NDArray[np.int64],
    policy: Inference,
    corrected_alpha: float,
) -> dict[str, NDArray[Any]]:
    counted = scores.counted(measure)
    d = scores.differences(measure, systems, baselines)[counted]
    columns: dict[str, NDArray[Any]] = {"queries": np.full(len(systems), len(d))}
    means = scores.means(measure)
    columns |= {"mean_baseline": means[baselines], "mean_run": means[systems]}
    names = ("difference", "ci_low", "ci_high", "ci_low_corrected", "ci_high_corrected", "effect_size",
             "effect_size_low", "effect_size_high", "minimum_detectable_difference",
             "minimum_detectable_difference_corrected")  # fmt: skip
    if len(d) == 0:
        columns |= {name: np.full(len(systems), np.nan) for name in names}
        return columns | {name: np.zeros(len(systems), np.int64) for name in ("wins", "ties", "losses")}
    ends = policy.intervals_at(d, [policy.confidence, 1 - corrected_alpha])
    effect = effect_size_interval_columns(d, confidence=policy.confidence)
    detectable = [policy.minimum_detectable_differences(d, alpha) for alpha in (policy.alpha, corrected_alpha)]
    values = (d.mean(axis=0), *ends[0], *ends[1], effect_size_columns(d), *effect, *detectable)
    return columns | dict(zip(names, values, strict=True)) | _outcomes(d, measure)


def _outcomes(d: NDArray[np.float64], measure: str) -> dict[str, NDArray[Any]]:
    """On how many queries the system is better, equal and worse."""
    above, below = (d > 0).sum(axis=0), (d < 0).sum(axis=0)
    wins, losses = (below, above) if is_lower_better(measure) else (above, below)
    return {"wins": wins, "ties": len(d) - above - below, "losses": losses}


def _note_on_sign_flips(scores: ScoreMatrix, pairs: Pairs, policy: Inference) -> list[str]:
    """Say it if no randomization test can be significant after correction, whatever the values."""
    baselines, systems = np.array(pairs).T
    smallest = [
        smallest_randomization_p(d)
        for name in scores.measures
        if len(d := scores.differences(name, systems, baselines)[scores.counted(name)])
    ]
    if not smallest:
        return []
    p = np.concatenate(smallest)
    p = p[p < 1]  # pairs that differ on no more than one query have nothing to be tested
    if not len(p) or policy.correct(p).min() < policy.alpha:
        return []
    return [
        f"No randomization test can be significant: {'' if policy.correction == 'none' else 'after correction '}its "
        f"p-value is at least {policy.correct(p).min():.2g} with so few queries on which the runs differ."
    ]


def _rows_by_type(scores: ScoreMatrix, pairs: Pairs, policy: Inference) -> tuple[TypeDifference, ...]:
    baselines, systems = np.array(pairs).T
    rows = []
    for name, known in scores.difficulty.items():
        for kind in QUERY_TYPES:
            chosen = (known.types == kind) & scores.counted(name)
            if not chosen.any():
                continue
            d = scores.differences(name, systems, baselines)[chosen]
            means = scores.values[name][:, chosen].mean(axis=1)
            outcomes = _outcomes(d, name)
            ends = policy.intervals(d) if len(d) >= FEWEST_FOR_INTERVALS else np.full((2, len(pairs)), np.nan)
            columns = [means[baselines], means[systems], d.mean(axis=0), *ends, *outcomes.values()]
            for (first, second), values in zip(
                pairs, zip(*(_plain_list(column) for column in columns), strict=True), strict=True
            ):
                queries = int(chosen.sum())
                rows.append(TypeDifference(name, scores.systems[first], scores.systems[second], kind, queries, *values))
    return tuple(rows)


def _plain_list(values: Any) -> list[Any]:
    """Python numbers, None in place of NaN."""
    if not isinstance(values, np.ndarray):
        return list(values)
    if values.dtype.kind != "f" or not np.isnan(values).any():
        return list(values.tolist())
    return [None if math.isnan(value) else value for value in values.tolist()]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _negative(value: float | None) -> float | None:
    return None if value is None else -value + 0.0


def _data_name(qrels: Any) -> str:
    """What to call the data set: the file of the judgments, if it is one."""
    return Path(qrels).name if isinstance(qrels, (str, PathLike)) else "queries"


def _checked_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    if len(names) != count or len(set(names)) != len(names):
        raise ArgumentError(f"names must be {count} different names, got {list(names)}")
    return tuple(names)


def run_names(runs: Sequence[Any]) -> tuple[str, ...]:
    """What to call runs: files by their names, by their paths where names are not enough, others by number.

    >>> run_names(["runs/a.txt", "runs/b.txt"]), run_names(["x/run.txt", "y/run.txt"]), run_names([{}, {}])
    (('a.txt', 'b.txt'), ('x/run.txt', 'y/run.txt'), ('run 1', 'run 2'))
    """
    paths = [str(run) if isinstance(run, (str, PathLike)) else None for run in runs]
    names = [f"run {i}" if path is None else Path(path).name for i, path in enumerate(paths, start=1)]
    if len(set(names)) < len(names):  # files of one name in different folders
        names = [path or name for path, name in zip(paths, names, strict=True)]
    return tuple(name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, start=1))


def _schema(kind: type[Any]) -> dict[str, Any]:
    import polars as pl

    types = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "float | None": pl.Float64}
    return {field.name: types[str(field.type)] for field in fields(kind)}
