"""The tables of pages: means, differences between systems, and published numbers beside ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from rankbound.display import plural
from rankbound.evaluation.inference import LARGE, Inference
from rankbound.evaluation.scores import is_lower_better
from rankbound.report.numbers import (
    NO_TEST_OF_FEW,
    describe_intervals,
    in_interval,
    show_interval,
    show_number,
    show_p,
    show_policy,
)
from rankbound.report.tables import BETTER, MARK, OUTSIDE, WORSE, Cell, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankbound.evaluation.comparison import Comparison
    from rankbound.evaluation.leaderboards import Leaderboard
    from rankbound.report.system_tests import SystemTest, Verdict

_ANOTHER_ORDER = (
    "Repeats of a query (folds, seeds) are averaged first here; what is compared with published numbers is the mean of "
    "the folds' and seeds' means, and may differ in the last digits."
)
_NOT_SETTINGS = (
    "measure",
    "published",
    "ours",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "versus",
    "versus_difference",
    "versus_low",
    "versus_high",
    "chosen",
    "note",
)


def means_table(verdicts: Sequence[Verdict], *, repeated: bool = False) -> Table:
    """A row per system and data set, a column per measure; the best in bold, marked where it differs from `versus`.

    ``repeated``: results of folds or seeds are shown too, whose means are taken in another order; the note says so.
    """
    measures = list(dict.fromkeys(verdict.measure for verdict in verdicts))
    several = len({verdict.data_set for verdict in verdicts}) > 1
    verdict_of = {(v.data_set, v.measure): v for v in verdicts}
    tests = {key: {test.system: test for test in v.systems} for key, v in verdict_of.items()}
    best = {
        (v.data_set, v.measure): (min if is_lower_better(v.measure) else max)(round(t.mean, 4) for t in v.systems)
        for v in verdicts
    }
    grouped = any(len(verdict.systems) > 2 for verdict in verdicts)
    rows, data, sets = [], [], []
    for data_set in dict.fromkeys(verdict.data_set for verdict in verdicts):
        first = next(verdict for verdict in verdicts if verdict.data_set == data_set)
        for system in (test.system for test in first.systems):
            cells: list[Cell] = []
            numbers: dict[str, str | float | None] = {"data": data_set, "system": system}
            for measure in measures:
                test = tests.get((data_set, measure), {}).get(system)
                numbers[measure] = None if test is None else test.mean
                if test is None:
                    cells.append(Cell("–"))
                    continue
                bold = len(first.systems) > 1 and round(test.mean, 4) == best[data_set, measure]
                cells.append(Cell(show_number(test.mean), bold, _mark(verdict_of[data_set, measure], test)))
            lead = tests.get((data_set, measures[0]), {}).get(system)
            letters = [Cell(_group_of(first, lead))] if grouped else []
            rows.append((*([Cell(data_set)] if several else []), Cell(system), *letters, *cells))
            data.append(numbers)
            sets.append(data_set)
    return Table(
        "means",
        "Mean over queries",
        (*(["data set"] if several else []), "system", *([_name_of_groups(verdicts)] if grouped else []), *measures),
        1 + several + grouped,
        tuple(rows),
        " ".join(filter(None, (_note_on_marks(verdicts), _ANOTHER_ORDER if repeated else ""))),
        pl.DataFrame(data, schema={"data": pl.String, "system": pl.String} | dict.fromkeys(measures, pl.Float64)),
        tuple(sets),
    )


def _group_of(verdict: Verdict, test: SystemTest | None) -> str:
    """The letters of a system, or the ranks that it can have where there are too many letters."""
    if test is None:
        return ""
    return test.letters if test.system not in verdict.ranks else verdict.ranks[test.system].show()


def _name_of_groups(verdicts: Sequence[Verdict]) -> str:
    with_ranks = {bool(verdict.ranks) for verdict in verdicts if len(verdict.systems) > 2}
    return "ranks" if with_ranks == {True} else "groups" if with_ranks == {False} else "groups or ranks"


_WORDS = ("data", "measure", "system", "versus")
# column of a file -> attribute of a `SystemTest`
_NUMBERS = {
    "queries": "shared",
    "difference": "difference",
    "ci_low": "difference_low",
    "ci_high": "difference_high",
    "ci_low_corrected": "corrected_low",
    "ci_high_corrected": "corrected_high",
    "p_value": "p_value",
    "minimum_detectable_difference": "minimum_detectable_difference",
    "wins": "wins",
    "ties": "ties",
    "losses": "losses",
}
_COUNTS = ("queries", "wins", "ties", "losses")


def differences_table(verdicts: Sequence[Verdict]) -> Table:
    """A row per tested pair: difference, its interval, p-value, queries won, tied and lost."""
    several = len({verdict.data_set for verdict in verdicts}) > 1
    tested = [(v, test) for v in verdicts for test in v.systems if test.difference is not None]
    rows = []
    for v, test in tested:
        cells = (
            Cell(v.measure),
            Cell(test.system),
            Cell(v.versus),
            Cell(show_number(test.difference, sign=True), v.is_significant(test), _mark(v, test)),
            Cell(show_interval(test.difference_low, test.difference_high, sign=True)),
            Cell(show_interval(test.corrected_low, test.corrected_high, sign=True)),
            Cell(show_p(test.p_value)),
            Cell(show_number(test.minimum_detectable_difference)),
            Cell(f"{test.wins} / {test.ties} / {test.losses}"),
        )
        rows.append((*([Cell(v.data_set)] if several else []), *cells))
    data = [
        (v.data_set, v.measure, test.system, v.versus, *(getattr(test, name) for name in _NUMBERS.values()))
        for v, test in tested
    ]
    types = {name: pl.Int64 if name in _COUNTS else pl.Float64 for name in _NUMBERS}
    level = f"{100 * (verdicts[0].inference if verdicts else Inference()).confidence:g} %"
    columns = ["measure", "system", "against", "difference", f"{level} interval", "corrected interval", "p"]
    return Table(
        "differences",
        "Differences between systems",
        (*(["data set"] if several else []), *columns, "detectable", "+ / = / −"),
        3 + several,
        tuple(rows),
        _note_on_differences(verdicts[0]) if verdicts else "",
        pl.DataFrame(data, schema={**dict.fromkeys(_WORDS, pl.String), **types}, orient="row"),
        tuple(v.data_set for v, _ in tested),
    )


def group_tables(comparison: Comparison) -> list[Table]:
    """A table for each attribute of queries: the differences on each group, the largest loss of each run first."""
    several, versus, policy = len(comparison.pairs) > 1, comparison.baseline, comparison.inference
    title = f"Difference from {versus}" if several else f"Difference: {comparison.runs[1]} − {comparison.runs[0]}"
    names = ["measure", *(["run"] if several else []), *(["against"] if versus is None else [])]
    tests = sum(row.p_corrected is not None for row in comparison.by_group)
    note = f"p: {show_policy(policy)} over the {tests:,} tests of groups; {describe_intervals(policy)}{NO_TEST_OF_FEW}"
    tables = []
    for attribute in dict.fromkeys(row.attribute for row in comparison.by_group):
        rows = [
            [
                row.measure,
                *([row.run] if several else []),
                *([row.baseline] if versus is None else []),
                row.group,
                f"{row.queries:,}",
                show_number(row.difference, sign=True),
                show_interval(row.ci_low_corrected, row.ci_high_corrected, sign=True),
                show_p(row.p_corrected),
            ]
            for row in comparison.by_group
            if row.attribute == attribute
        ]
        columns = [*names, attribute, "queries", "difference", f"{100 * policy.confidence:g} % interval", "p"]
        caption = f"{'Difference' if versus is None else title} by {attribute}"
        table = Table.of_texts(caption, columns, rows, text_columns=len(names) + 1, notes=[note])
        tables.append(replace(table, name=f"groups-{attribute}"))
    return tables


def leaderboard_table(board: Leaderboard) -> Table:
    """A row per system, the best first: the ranks it can have, its mean, and its mean on each data set."""
    several = len(board.tied_for_first) < len(board.ranks)
    rows = [
        (
            Cell(row.system, bold=several and row.may_be_first),
            Cell(row.show()),
            Cell(show_number(row.mean)),
            *(Cell(show_number(mean)) for mean in board.cells[row.system].values()),
        )
        for row in board.ranks
    ]
    sample = {
        "queries": "the data sets are given, and their queries are samples",
        "data sets": "the data sets are a sample",
    }
    note = (
        "Mean: over the data sets, of the means over queries. Ranks: those that a system can have, all at once with a "
        f"probability of {100 * board.inference.confidence:g} %, by tests of all pairs; {sample[board.over]}. Bold: "
        "not separable from the best."
    )
    title = f"{board.measure} over {plural(len(board.data_sets), 'data set')}"
    columns = ("system", "ranks", "mean", *board.data_sets)
    return Table("leaderboard", title, columns, 2, tuple(rows), " ".join([note, *board.notes]), board.table)


_INTERVALS = {"bca": "bootstrap over queries", "percentile": "percentile bootstrap over queries", "t": "Student's"}


def _note_on_differences(verdict: Verdict) -> str:
    policy = verdict.inference
    large = "" if policy.interval == "t" else f" (Student's from {LARGE:,} queries on and at extreme levels)"
    return (
        f"{BETTER} better, {WORSE} worse: p < {policy.alpha:g}. Intervals: {_INTERVALS[policy.interval]}{large}; "
        f"corrected: at the level that holds for all comparisons together. "
        f"p: {show_policy(policy)} {verdict.family}. "
        f"Detectable: the smallest true difference that a t test would find with a power of {policy.power:g}, before "
        "correction. + / = / −: queries on which the system is better, equal, worse."
    )


def published_table(results: pl.DataFrame, inference: Inference | None = None) -> Table:
    """Published numbers next to ours, and the test of ours against another setting where there is one."""
    policy = inference or Inference()
    settings = [name for name in results.columns if name not in _NOT_SETTINGS and results[name].n_unique() > 1]
    tested, corrected = _correct_p_values(results, policy)
    noted = "note" in results.columns and any(results["note"].to_list())
    rows = []
    for row, p in zip(results.rows(named=True), corrected, strict=True):
        low, high = row.get("ci_low"), row.get("ci_high")
        outside = row["published"] is not None and low is not None and not in_interval(row["published"], low, high)
        cells = [Cell("" if row[name] is None else str(row[name])) for name in (*settings, "measure")]
        cells += [
            Cell(show_number(row["published"])),
            Cell(show_number(row["ours"])),
            Cell(show_interval(low, high)),
            Cell(show_number(row["difference"], sign=True), mark=OUTSIDE if outside else ""),
        ]
        if tested:
            significant = p is not None and p < policy.alpha
            ahead = Cell(show_number(row.get("versus_difference"), sign=True), significant, MARK if significant else "")
            cells += [Cell(str(row.get("versus") or "–")), ahead, Cell(show_p(p))]
        rows.append((*cells, *([Cell(str(row["note"] or ""))] if noted else [])))
    level = f"{100 * policy.confidence:g} %"
    note = f"Difference: ours minus published. {OUTSIDE} the published number lies outside our {level} interval."
    if tested:
        tests = sum(p is not None for p in corrected)
        family = "the test" if tests == 1 else f"the {tests} tests"
        note += f" {MARK} p < {policy.alpha:g}, {show_policy(policy)} over {family} of this table."
    columns = [name.replace("_", " ") for name in (*settings, "measure", "published", "ours")]
    columns += [f"{level} interval", "difference"]
    columns += (["against", "ahead by", "p"] if tested else []) + (["note"] if noted else [])
    sets = results["data"].to_list() if "data" in results.columns else []
    return Table(
        "published",
        "Published and ours",
        tuple(columns),
        len(settings) + 1,
        tuple(rows),
        note,
        results,
        tuple("" if name is None else str(name) for name in sets),
    )


def _correct_p_values(results: pl.DataFrame, policy: Inference) -> tuple[bool, list[float | None]]:
    """Whether there is any test, and the p-values corrected over all of them."""
    raw = results["p_value"].to_list() if "p_value" in results.columns else [None] * results.height
    made = [p for p in raw if p is not None]
    fixed = iter(policy.correct(made).tolist() if made else ())
    return bool(made), [None if p is None else next(fixed) for p in raw]


def _mark(verdict: Verdict, test: SystemTest) -> str:
    """Whether a system is significantly better or worse than the one it is compared with."""
    if not verdict.is_significant(test) or not test.difference:
        return ""
    return BETTER if (test.difference > 0) != is_lower_better(verdict.measure) else WORSE


def _note_on_marks(verdicts: Sequence[Verdict]) -> str:
    if all(len(verdict.systems) == 1 for verdict in verdicts):
        return ""
    versus = {verdict.versus for verdict in verdicts}
    named = versus.pop() if len(versus) == 1 else "the best system"
    policy = verdicts[0].inference
    test = f"p < {policy.alpha:g}, {show_policy(policy)} {verdicts[0].family}"
    note = f"Bold: best. {BETTER} significantly better and {WORSE} significantly worse than {named} ({test})."
    kind = _name_of_groups(verdicts) if any(len(verdict.systems) > 2 for verdict in verdicts) else ""
    if "groups" in kind:
        note += f" Systems that share a letter do not differ significantly by {verdicts[0].measure}."
    if "ranks" in kind:
        note += (
            f" Ranks: those that a system can have by {verdicts[0].measure}, by tests of all pairs; a system whose "
            "ranks begin at 1 is not separable from the best."
        )
    return note
