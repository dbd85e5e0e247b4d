"""How far runs are judged: the table of coverage, and sentences of caution where much is not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from rankbound.report.numbers import show_number
from rankbound.report.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rankbound.lists import Coverage

FEWEST_JUDGED = 0.9  # a lower Judged@k comes with a caution
_NAMED = 3  # more systems than this are counted, and the lowest is named


def coverage_table(coverage: Mapping[str, Coverage]) -> Table:
    """A row per system: queries that only one side has, returned and judged documents, Judged@k.

    It has no rows if all queries are judged and returned and all returned documents judged, and no column of Judged if
    every returned document is judged.
    """
    partial = any(covered.unjudged_documents for covered in coverage.values())
    complete = not partial and not any(c.missing_queries or c.unjudged_queries for c in coverage.values())
    cutoffs = sorted({covered.cutoff for covered in coverage.values() if covered.cutoff is not None})
    judged = ["Judged@" + "/".join(map(str, cutoffs)), "Judged"] if partial else []
    rows = []
    for system, covered in ({} if complete else coverage).items():
        counts = (
            covered.shared_queries,
            covered.missing_queries,
            covered.unjudged_queries,
            covered.queries_without_judged,
            covered.returned_documents,
            covered.judged_documents,
        )
        fractions = [
            Cell(show_number(covered.judged_at_cutoff), bold=covered.judged_at_cutoff < FEWEST_JUDGED),
            Cell(show_number(covered.judged)),
        ]
        rows.append((Cell(system), *(Cell(f"{count:,}") for count in counts), *(fractions if partial else [])))
    note = (
        "Missing: judged queries that are not in the run. Not judged: queries of the run without judgments. "
        "Nothing judged: shared queries none of whose returned documents is judged."
    )
    if partial:
        note += (
            f" Judged@k: mean over queries of the fraction of the top k documents that have a judgment (bold below "
            f"{FEWEST_JUDGED:g}); Judged: the same for all returned documents. Plain measures count documents "
            "without a judgment as not relevant."
        )
    data = [{"system": system, **covered.to_dict()} for system, covered in coverage.items() if not complete]
    columns = (
        "system",
        "shared queries",
        "missing",
        "not judged",
        "nothing judged",
        "returned documents",
        "judged documents",
        *judged,
    )
    return Table("coverage", "Coverage of the judgments", columns, 1, tuple(rows), note, pl.DataFrame(data))


def coverage_cautions(coverage: Mapping[str, Coverage], never_returned: int = 0) -> list[str]:
    """Sentences on queries in none of the runs, runs without a judged document, and runs of which much is not judged.

    >>> from rankbound import evaluate
    >>> covered = evaluate({"q": {"a": 1}}, {"q": {"a": 3.0, "b": 2.0}}, "P@2").coverage
    >>> coverage_cautions({"bm25": covered})  # doctest: +ELLIPSIS
    ['Judged@2 of bm25 is 0.50: 50 % of its top 2 documents have no judgment, and plain measures count ...']
    """
    cautions = []
    if never_returned:
        queries = "1 judged query is" if never_returned == 1 else f"{never_returned:,} judged queries are"
        cautions.append(f"{queries} in none of the runs.")
    strange = [system for system, covered in coverage.items() if covered.has_no_common_document]
    cautions += [f"{system}: {coverage[system].warning}" for system in strange]
    low = {
        system: covered
        for system, covered in coverage.items()
        if covered.judged_at_cutoff < FEWEST_JUDGED and system not in strange
    }
    if len(low) <= _NAMED:
        cautions += [
            f"Judged@{covered.cutoff} of {system} is {_fraction_in_words(covered)}" for system, covered in low.items()
        ]
    else:
        lowest = min(low, key=lambda system: low[system].judged_at_cutoff)
        cautions.append(
            f"Judged@{low[lowest].cutoff} is below {FEWEST_JUDGED:g} for {len(low)} of {len(coverage)} systems. It is "
            f"lowest for {lowest}, {_fraction_in_words(low[lowest])}"
        )
    return cautions


def _fraction_in_words(covered: Coverage) -> str:
    fraction, k = covered.judged_at_cutoff, covered.cutoff
    documents = "documents at rank 1" if k == 1 else f"top {k} documents"
    return (
        f"{fraction:.2f}: {100 * (1 - fraction):.0f} % of its {documents} have no judgment, and plain measures count "
        "them as not relevant."
    )
