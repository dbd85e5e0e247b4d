"""compare: is one run better than another, by how much, on which queries, and could it be noise?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import polars as pl

from rankbound.data.candidates import read_candidates
from rankbound.data.json_lines import check_same_judgments, is_json_lines
from rankbound.data.large import is_in_parts
from rankbound.difficulty import query_type_rule
from rankbound.difficulty.candidates import check_rule
from rankbound.difficulty.unknown.differences import RunsWithUnknown, check_difference
from rankbound.display import page_of, pandas_frame, plain_values, plot_of, table_of
from rankbound.errors import ArgumentError
from rankbound.evaluation import Evaluation
from rankbound.evaluation.alignment import (
    align_evaluations,
    align_lists,
    align_runs,
    lists_on_shared_queries,
    run_names,
)
from rankbound.evaluation.differences import (
    Difference,
    TypeDifference,
    difference_columns,
    note_on_sign_flips,
    plain_list,
    row_schema,
    type_differences,
)
from rankbound.evaluation.group_tests import GroupDifference, group_differences
from rankbound.evaluation.groups import QueryGroups, read_groups
from rankbound.evaluation.inference import Inference, caution_about_wilcoxon, group_letters, mean_intervals, warn
from rankbound.evaluation.label_uncertainty import given_grades, with_grades
from rankbound.evaluation.large import Settings
from rankbound.evaluation.leaderboards import RankInterval, rank_intervals
from rankbound.evaluation.lists import warn_of_coverage
from rankbound.evaluation.runs import are_runs_by_name, default_measures, evaluate_run
from rankbound.evaluation.scores import ScoreMatrix, is_lower_better
from rankbound.evaluation.unjudged import Decision, decide, ranges_of_runs
from rankbound.lists import Coverage, Lists
from rankbound.measures import Measure, parse_measures
from rankbound.protocol import DEFAULT_MEASURES, MEASURES_OF_UNJUDGED, Protocol, ProtocolFields, as_protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.report.display.plot import Plot


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
    def baselines(self) -> tuple[str, ...]:
        """The runs that the others are compared with; empty where all pairs are compared."""
        first, second = map(set, zip(*self.pairs, strict=True))
        return () if first & second else tuple(self.runs[row] for row in sorted(first))

    @property
    def baseline(self) -> str | None:
        """The run that all others are compared with; None where there are several, or all pairs are compared."""
        return self.baselines[0] if len(self.baselines) == 1 else None

    def mean(self) -> dict[str, dict[str, float | None]]:
        """Mean of every measure for each run, over the queries that count for all runs."""
        return {
            run: {name: plain_values(self.scores.means(name)[row]) for name in self.measures}
            for row, run in enumerate(self.runs)
        }

    @cached_property
    def intervals(self) -> dict[str, dict[str, tuple[float | None, float | None]]]:
        """Confidence interval of every mean, by run and measure."""
        ends = {name: mean_intervals(self.scores, name, 0, self.inference) for name in self.measures}
        return {
            run: {name: (plain_values(ends[name][0, row]), plain_values(ends[name][1, row])) for name in self.measures}
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
        columns = [plain_list(self.columns[field.name]) for field in fields(Difference)]
        return tuple(Difference(*values) for values in zip(*columns, strict=True))

    @cached_property
    def by_type(self) -> tuple[TypeDifference, ...]:
        """A row per measure, pair of runs and type of query."""
        return type_differences(self.scores, self.pairs, self.inference)

    @cached_property
    def by_group(self) -> tuple[GroupDifference, ...]:
        """A row per measure, pair of runs and group of queries, the largest loss first; empty without groups."""
        return () if self.groups is None else group_differences(self.scores, self.pairs, self.groups, self.inference)

    @cached_property
    def table(self) -> pl.DataFrame:
        """The rows as a frame."""
        schema = row_schema(Difference)
        return pl.DataFrame({name: plain_list(self.columns[name]) for name in schema}, schema=schema)

    @cached_property
    def type_table(self) -> pl.DataFrame:
        """The rows by type of query as a frame."""
        return pl.DataFrame([asdict(row) for row in self.by_type], schema=row_schema(TypeDifference))

    def summary(self, measure: str | None = None) -> pl.DataFrame:
        """One row per run, the best first, by one measure (the first one by default).

        Columns: run, mean, ci_low, ci_high, letters, versus, difference, difference_low, difference_high, p_corrected.
        Runs are compared with the baseline, the best of several, or, where all pairs were compared, with the best run;
        the difference is run minus versus, and its interval is at the corrected level.
        """
        name = self.measures[0] if measure is None else measure
        if name not in self.measures:
            raise ArgumentError(f"measure must be one of {', '.join(self.measures)}, got {measure!r}")
        order = self._best_first(name)
        versus = next(run for index in order if (run := self.runs[index]) in (self.baselines or self.runs))
        tests = {(row.baseline, row.run): row for row in self.rows if row.measure == name}
        means, rows = self.scores.means(name), []
        for index in order:
            run = self.runs[index]
            test, sign = tests.get((versus, run)), 1
            if test is None:
                test, sign = tests.get((run, versus)), -1  # the pair the other way round
            known = [] if test is None else [test.difference, *(test.ci_low_corrected, test.ci_high_corrected)[::sign]]
            turned = [None if value is None else sign * value + 0.0 for value in known or [None] * 3]
            p = None if test is None else test.p_corrected
            about = (self.letters[name][run], None if run == versus else versus)
            rows.append((run, plain_values(means[index]), *self.intervals[run][name], *about, *turned, p))
        words = ("run", "letters", "versus")
        numbers = ("difference", "difference_low", "difference_high", "p_corrected")
        names = ("run", "mean", "ci_low", "ci_high", "letters", "versus", *numbers)
        schema = {column: pl.String if column in words else pl.Float64 for column in names}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per measure and query: measure, qid, type, the value of each run; null where it does not count."""
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
    baseline: int | Sequence[int] | None = 0,
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
        Index of the run that the others are compared with, or several, with each of which every other run is compared;
        all comparisons are corrected together. None compares all pairs.
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
    baselines = _check_baselines(baseline, len(runs))
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
        )
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
            qrels,
            runs,
            requested or (),
            protocol,
            names=titles,
            data=_data_name(qrels),
            type_quota=type_quota,
            against_random=against_random,
        )
    comparison = compare_scores(scores, [titles[index] for index in baselines], policy)
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


def _check_baselines(baseline: int | Sequence[int] | None, count: int) -> list[int]:
    chosen = [] if baseline is None else [baseline] if isinstance(baseline, (int, np.integer)) else list(baseline)
    if any(not 0 <= index < count for index in chosen):
        raise ArgumentError(f"baseline must be None or between 0 and {count - 1}, got {baseline}")
    if len(set(chosen)) < len(chosen) or len(chosen) >= count or (not chosen and baseline is not None):
        raise ArgumentError(f"baseline must name different runs, and not all of them, got {baseline}")
    return [int(index) for index in chosen]


def compare_scores(scores: ScoreMatrix, baseline: str | Sequence[str] | None, policy: Inference) -> Comparison:
    """Compare the systems of a score matrix with one or several of them, or all pairs of them if none is given."""
    baselines = [baseline] if isinstance(baseline, str) else list(baseline or ())
    scores = scores.with_common_queries()
    pairs = tuple(combinations(range(len(scores.systems)), 2))
    if baselines:
        first = [scores.systems.index(name) for name in baselines]
        others = [row for row in range(len(scores.systems)) if row not in first]
        pairs = tuple((one, other) for one in first for other in others)
    columns = difference_columns(scores, pairs, policy)
    counts = {name: int(scores.counted(name).sum()) for name in scores.measures}
    notes = [*policy.notes(counts), *note_on_sign_flips(scores, pairs, policy)]
    if policy.test == "wilcoxon" and (caution := caution_about_wilcoxon(counts.values())):
        notes.append(caution)
    return Comparison(scores, policy, pairs, columns, tuple(notes))


def _data_name(qrels: Any) -> str:
    """What to call the data set: the file of the judgments, if it is one."""
    return Path(qrels).name if isinstance(qrels, (str, PathLike)) else "queries"


def _checked_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    if len(names) != count or len(set(names)) != len(names):
        raise ArgumentError(f"names must be {count} different names, got {list(names)}")
    return tuple(names)
