"""Systems compared with random rankings: a table and a sentence of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from rankbound.evaluation.against_random import systems_against_random
from rankbound.evaluation.combined_p_values import fisher
from rankbound.report.numbers import say_p, show_correction, show_p
from rankbound.report.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rankbound.evaluation.against_random import AgainstRandom
    from rankbound.evaluation.inference import Inference
    from rankbound.evaluation.scores import ScoreMatrix

_COMBINED = {
    "fisher": "p: Fisher",
    "fisher_mid_p": "mid-p",
    "higher_criticism": "higher criticism",
    "harmonic_mean": "harmonic mean",
}


def random_table(scores: ScoreMatrix, inference: Inference, systems: Sequence[str] | None = None) -> Table:
    """A row per system: on how many queries it is better, or worse, than random rankings; no rows if unknown."""
    tests = systems_against_random(scores, inference, systems)
    rows, data = [], []
    for system, test in tests.items():
        counts = (test.better, test.no_evidence, test.worse, test.no_choice)
        rows.append(
            (
                Cell(system),
                *(Cell(f"{count:,}") for count in counts),
                Cell("–" if test.queries == 0 else f"{100 * test.fraction_better:.0f} %"),
                *(Cell(show_p(test.combined[name])) for name in _COMBINED),
            )
        )
        summary = test.to_dict()
        names = (
            "queries",
            "better",
            "no_evidence",
            "worse",
            "no_choice",
            "above_expected",
            "fraction_better",
            "out_of_reach",
        )
        data.append(
            {"system": system, "measure": test.measure} | {name: summary[name] for name in names} | test.combined
        )
    columns = ("system", "better", "no evidence", "worse", "no choice", "estimated better", *_COMBINED.values())
    measure = next(iter(tests.values())).measure if tests else ""
    title = f"Queries compared with random rankings by {measure}"
    return Table("random", title, columns, 1, tuple(rows), _note(tests, inference), pl.DataFrame(data))


def _note(tests: Mapping[str, AgainstRandom], inference: Inference) -> str:
    note = (
        f"Better: a random ranking of the same candidates would score as well with a probability below "
        f"{100 * inference.alpha:g} % ({show_correction(inference)} over the queries with a choice); worse: the other "
        "tail. No choice: every order of the candidates scores the same. Estimated better: fraction of the queries on "
        'which the system is better than random at all (Storey). p: of "no better than random on any query"; Fisher '
        "and higher criticism assume that queries are independent, the harmonic mean does not."
    )
    out_of_reach = max((test.out_of_reach for test in tests.values()), default=0)
    if out_of_reach:
        note += f" On {out_of_reach:,} queries even the best ranking would not be significant before correction."
    return note


def random_sentences(scores: ScoreMatrix, system: str, inference: Inference) -> tuple[str, ...]:
    """On how many queries a system is better than random, in words; none if unknown."""
    tests = systems_against_random(scores, inference, [system])
    if not tests or tests[system].queries == 0:
        return ()
    test = tests[system]
    words = f"{system} is significantly better than a random ranking on {test.better:,} of {test.queries:,} queries "
    words += f"by {test.measure}"
    words += f" and significantly worse on {test.worse:,}" if test.worse else ""
    words += f" ({100 * inference.alpha:g} %, {show_correction(inference)}). "
    p = fisher(test.p_values.better[test.p_values.choice])
    words += f"It is better than random on an estimated {100 * test.fraction_better:.0f} % of them; Fisher's test of "
    return (words + f'"no better than random on any query" has {say_p(p)}.',)
