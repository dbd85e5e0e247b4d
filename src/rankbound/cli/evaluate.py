"""rankbound evaluate: evaluate one or more runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.predicted import Predicted, estimate_with_predictions, print_estimates
from rankbound.cli.protocol_options import takes_protocol
from rankbound.errors import CoverageWarning
from rankbound.protocol import RANGE_OF, Protocol
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.evaluation import Evaluation
    from rankbound.evaluation.against_random import AgainstRandom
    from rankbound.evaluation.group_tests import GroupMean
    from rankbound.evaluation.inference import Inference


@takes_protocol()
def evaluate(
    qrels: options.Qrels,
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Runs: TREC files, csv, parquet or JSON lines.", metavar="RUN", show_default=False),
    ] = None,
    measures: options.Measures = None,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    min_rating: Annotated[
        float | None,
        typer.Option(metavar="X", help="Held-out interactions as judgments: items rated below X are not relevant."),
    ] = None,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Add the worst, expected and best value of each measure.")
    ] = False,
    against_random: Annotated[
        bool,
        typer.Option(
            "--against-random",
            help="Count the queries on which each run is better than random rankings, with p-values.",
        ),
    ] = False,
    groups: options.Groups = None,
    predicted: Predicted = None,
    confidence: options.Confidence = 0.95,
    correction: options.Correction = options.CorrectionName.holm,
    per_query: options.PerQuery = None,
    cluster: options.Cluster = None,
    shuffle: options.Shuffle = True,
    scratch: options.Scratch = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate runs against judgments.

    Judgments can be the labels of a LETOR file, with the names of queries and documents that `rankbound rank` writes.

    Held-out interactions of users, a csv or parquet file with the columns user and item, can be judgments of lists of
    recommendations: every item that a user interacted with is relevant, whatever its rating. The default measures are
    then nDCG@10, R@10, Success@10 (hit rate) and AP(div='min')@10.

    A wrapper around a measure's name normalizes it by what any ranking of the query could score: MM(...), EB(...),
    EM(...), Z(...), DB(...), UL1(...), UL2(...) or UL2C(...). STD(...), STDU(...) and ECDF(...) standardize it by what
    the runs of --reference score. `rankbound measures` lists the measures.

    --against-random adds p-values from the distribution of each measure under random ranking, per query (in the file
    of --per-query) and combined over queries. --groups adds the means of groups of queries and their differences from
    the other queries. --correction is for the p-values of both.

    --predicted adds labels of a model, such as an LLM judge, to those of people: the intervals hold however bad the
    model is, and are shorter than those of people's labels alone if it is good.

    A quoted pattern, such as 'run-*.parquet', names the parts of one table. Tables in parts, and parquet files with
    --cluster, are evaluated part by part: memory holds the values of the queries and one part, and the numbers do not
    depend on the parts or on the number of workers. TREC runs of 32 MiB or more, compressed or not, are evaluated in
    chunks as well, and shuffled if rows of a query are not adjacent.

    \b
    Examples:
      rankbound evaluate qrels.txt run.txt -m nDCG@10 -m "EM(nDCG@10)" --per-query values.csv
      rankbound evaluate qrels.txt run.txt -m nDCG@10 --against-random
      rankbound evaluate qrels.txt run.txt -m nDCG@10 --groups queries.csv
      rankbound evaluate golden.jsonl -m R@5 -m RR
      rankbound rank model test.txt -o run.txt && rankbound evaluate test.txt run.txt
      rankbound evaluate split/test.csv top.csv -m nDCG@10 -m Recall@10 --per-query users.csv
      rankbound evaluate 'qrels-*.parquet' 'run-*.parquet' --cluster local:4
    """
    from rankbound.evaluation import evaluate as evaluate_runs
    from rankbound.evaluation.group_tests import group_means
    from rankbound.evaluation.groups import read_groups
    from rankbound.evaluation.inference import Inference

    runs = options.with_own_run(qrels, runs, least=1)
    if predicted is not None:
        others = {"--bounds": bounds, "--against-random": against_random, "--min-rating": min_rating is not None}
        others |= {"--per-query": per_query is not None, "--cluster": cluster is not None}
        others |= {"--groups": groups is not None}
        others |= {"--correction": correction is not options.CorrectionName.holm}
        estimates = estimate_with_predictions((qrels, predicted), runs, measures, protocol, confidence, others)
        if as_json:
            output.print_json(estimates.to_dict())
        else:
            print_estimates(estimates, with_differences=False)
        return
    output.check_table_path(per_query)
    policy = Inference(confidence=confidence, correction=correction.value)
    known = None if groups is None else read_groups(groups)  # errors are reported before large files are read
    with output.working("evaluating ..."), warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # they are printed below
        results = evaluate_runs(
            qrels,
            {path: path for path in runs},
            measures or None,
            protocol,
            bounds=bounds,
            against_random=against_random,
            min_rating=min_rating,
            cluster=cluster,
            shuffle=shuffle,
            scratch=scratch,
        )
    tests = _compare_with_random(results, policy) if against_random else {}
    by_group = {
        name: group_means(result.values, result.query_ids, known, policy)
        for name, result in results.items()
        if known is not None
    }
    output.print_warnings(f"{name}: {text}" for name, result in results.items() for text in result.warnings)
    if per_query is not None:
        _write_per_query(results, per_query)
    if as_json:
        summaries = {
            name: result.to_dict() | {"intervals": _intervals(result, confidence)} for name, result in results.items()
        }
        for name, by_measure in tests.items():
            summaries[name]["against_random"] = {measure: test.to_dict() for measure, test in by_measure.items()}
        for name, rows in by_group.items():
            summaries[name]["by_group"] = [asdict(row) for row in rows]
        output.print_json(summaries[runs[0]] if len(runs) == 1 else {"runs": summaries})
        return
    if len(results) == 1 or bounds or protocol.has_unknown_labels:
        for name, result in results.items():
            _print_one(name, result, confidence)
    else:
        _print_many(results)
    for note in dict.fromkeys(note for result in results.values() for note in result.notes):
        output.print_note(f"Note: {note}")
    for name, rows in by_group.items():
        _print_groups(f"{name}: mean" if len(runs) > 1 else "Mean", rows, policy)
    if tests:
        _print_against_random(tests, policy)


_BOUNDS = ("complete", "worst", "expected", "best")


def _write_per_query(results: dict[str, Evaluation], path: str) -> None:
    import polars as pl

    frames = [result.per_query for result in results.values()]
    if len(frames) > 1:
        frames = [
            frame.select(pl.lit(name).alias("run"), pl.all()) for name, frame in zip(results, frames, strict=True)
        ]
    output.write_table(pl.concat(frames, how="vertical_relaxed"), path)


def _print_one(name: str, result: Evaluation, confidence: float) -> None:
    bounds, counted, intervals = result.mean_bounds(), result.counted_queries(), _intervals(result, confidence)
    ranges = result.range(confidence) if result.ranges or result.label_draws else {}
    rows = []
    for measure, mean in result.mean().items():
        row = [measure, _show_mean(measure, mean)]
        if intervals:
            row.append(numbers.show_interval(*intervals.get(measure, (None, None))))
        if ranges:
            row.append(numbers.show_interval(*ranges[measure]))
        if bounds:
            row += [numbers.show_number(bounds.get(measure, {}).get(side)) for side in _BOUNDS]
        rows.append([*row, str(counted[measure])])
    columns = [
        "measure",
        "mean",
        *([f"{100 * confidence:g} % interval"] if intervals else []),
        *(["range over labels" if result.ranges else f"{100 * confidence:g} % over labels"] if ranges else []),
        *(_BOUNDS if bounds else []),
        "queries",
    ]
    output.print_table(name, columns, rows, note=_note(result))


def _print_many(results: Mapping[str, Evaluation]) -> None:
    measures = next(iter(results.values())).measures
    rows = [
        [name, *(_show_mean(measure, mean) for measure, mean in result.mean().items())]
        for name, result in results.items()
    ]
    output.print_table("Mean over queries", ["run", *measures], rows)
    for name, result in results.items():
        output.print_note(f"{name}: {_note(result)}")


def _print_groups(title: str, rows: Sequence[GroupMean], policy: Inference) -> None:
    """A table for each attribute of queries: the groups of each measure, the lowest mean first."""
    for attribute in dict.fromkeys(row.attribute for row in rows):
        output.print_note("")
        output.print_table(
            f"{title} by {attribute}",
            ["measure", attribute, "queries", "mean", f"{100 * policy.confidence:g} % interval", "difference", "p"],
            [
                [
                    row.measure,
                    row.group,
                    f"{row.queries:,}",
                    numbers.show_number(row.mean),
                    numbers.show_interval(row.ci_low_corrected, row.ci_high_corrected),
                    numbers.show_number(row.difference, sign=True),
                    numbers.show_p(row.p_corrected),
                ]
                for row in rows
                if row.attribute == attribute
            ],
            text_columns=2,
        )
    if rows:
        tests = sum(row.p_corrected is not None for row in rows)
        output.print_note(
            "difference: from the mean of the other queries; "
            f"p: Student's t test, {numbers.show_correction(policy)} over the {tests:,} tests of groups; "
            f"{numbers.describe_intervals(policy)}{numbers.NO_TEST_OF_FEW}"
        )


def _compare_with_random(results: dict[str, Evaluation], policy: Inference) -> dict[str, Mapping[str, AgainstRandom]]:
    from rankbound.evaluation.against_random import against_random

    with output.working("combining p-values ..."):
        tests = {name: against_random(result, inference=policy) for name, result in results.items()}
        for by_measure in tests.values():
            for test in by_measure.values():
                _ = test.combined  # computed here, where the spinner shows
    return tests


def _print_against_random(tests: dict[str, Mapping[str, AgainstRandom]], policy: Inference) -> None:
    """One row per run and measure: on how many queries the run is better or worse than random rankings."""
    from rankbound.evaluation.against_random import OUTCOMES

    several = len(tests) > 1
    output.print_note("")
    output.print_table(
        "Queries compared with random rankings of the same candidates",
        [
            *(["run"] if several else []),
            "measure",
            *OUTCOMES,
            "above expected",
            "estimated better",
            "p: Fisher",
            "mid-p",
            "higher criticism",
            "harmonic mean",
        ],
        [
            [
                *([name] if several else []),
                measure,
                *(str(count) for count in (test.better, test.no_evidence, test.worse, test.no_choice)),
                str(test.above_expected),
                "–" if test.queries == 0 else f"{100 * test.fraction_better:.0f} %",
                *(numbers.show_p(p) for p in test.combined.values()),
            ]
            for name, by_measure in tests.items()
            for measure, test in by_measure.items()
        ],
        text_columns=1 + several,
        note=f"better, worse: p < {policy.alpha:g}, {numbers.show_correction(policy)} over the queries with a choice; "
        "above expected: the run scores more than random rankings do in the mean; estimated better: fraction of the "
        'queries on which it is better at all (Storey); p: of "no better than random on any query", where Fisher and '
        "higher criticism assume independent queries and the harmonic mean does not",
    )
    unreachable = dict.fromkeys(  # the same for all runs, unless the candidates are what a run returned
        f"{test.out_of_reach} of {test.queries} by {measure}"
        for by_measure in tests.values()
        for measure, test in by_measure.items()
        if test.out_of_reach
    )
    if unreachable:
        output.print_note(
            f"Queries on which even the best ranking is not significantly better (p >= {policy.alpha:g}): "
            + ", ".join(unreachable)
        )


def _intervals(result: Evaluation, confidence: float) -> dict[str, tuple[float, float]]:
    """Intervals of the means; none if a mean is over too few queries for a reliable interval."""
    from rankbound.evaluation.inference import FEWEST_QUERIES

    enough = min(result.counted_queries().values()) >= FEWEST_QUERIES
    return result.interval(confidence) if enough else {}


def _show_mean(measure: str, mean: float) -> str:
    """Four decimals, or an integer for counts that are summed over queries."""
    from rankbound.measures import parse_measure

    parsed = parse_measure(measure)
    counts = parsed.definition.aggregate(parsed) == "sum" and mean == round(mean)
    return f"{mean:.0f}" if counts else numbers.show_number(mean)


def _note(result: Evaluation) -> str:
    """How many queries were counted, empty, missing and unjudged, how they were treated, and unjudged documents."""
    empty = {"skip": "left out of its mean", "zero": "counted as 0", "one": "counted as 1"}[result.policy["empty"]]
    missing = "counted as 0" if result.policy["missing"] == "zero" else "ignored"
    parts = [f"{result.queries} queries"]
    if result.empty_queries:
        parts.append(f"{result.empty_queries} empty for some measure ({empty})")
    if result.no_choice_queries:
        parts.append(f"{result.no_choice_queries} without a choice for some measure: every order scores the same")
    parts += output.describe_coverage(result.coverage, missing)
    parts.append(f"ties: {result.policy['ties']}")
    if result.bounds or result.p_values or any(_is_bounded(name) for name in result.measures):
        parts.append(f"candidates: {output.describe_candidates(result.candidates)}")
    if result.bounds:
        parts.append("complete: the run read as a complete ranking of the candidates")
    if result.ranges:
        grades = str(result.protocol.unjudged).removeprefix(RANGE_OF)
        parts.append(f"range over labels: documents without a judgment have any of the labels {grades}")
    if result.label_draws:
        error = max(draws.error_of_mean for draws in result.label_draws.values())
        by = f"with a standard error of at most {error:.1g} by draws of labels" if error else "exact"
        parts.append(f"expected values, {by}; their interval is about labels, not about other queries")
    if "shuffled" in result.policy:
        parts.append(f"shuffled by query, because {result.policy['shuffled']}")
    if "references" in result.policy:
        parts.append(f"references: {result.policy['references']}")
    return "; ".join(parts)


def _is_bounded(name: str) -> bool:
    from rankbound.measures import parse_measure

    measure = parse_measure(name)
    return measure.bounding != "none" and not measure.is_standardized
