"""rankbound bounds: worst, expected and best value of a measure for one query."""

from __future__ import annotations

from rankbound.cli import options, output
from rankbound.report import numbers


def bounds(
    measure: options.PlainMeasure,
    n: options.Items = None,
    relevant: options.Relevant = None,
    labels: options.Labels = None,
    depth: options.RanksFilled = None,
    as_json: options.Json = False,
) -> None:
    """Print the worst, expected (random ranking) and best value of a measure for one query.

    \b
    Examples:
      rankbound bounds nDCG@10 --n 9 --relevant 3
      rankbound bounds nDCG --labels 2,0,1,0
      rankbound bounds AP --n 1000 --relevant 20 --depth 100
    """
    from rankbound.difficulty.bounds import bounds as bounds_of

    query = options.Query.parse(n, relevant, labels, depth)
    bounds = bounds_of(measure, **query._asdict())
    values = {"worst": bounds.worst, "expected": bounds.expected, "best": bounds.best}
    if as_json:
        output.print_json(values, indent=None)
        return
    output.print_table(
        f"{measure} of {query}",
        ["", "value"],
        [[name, numbers.show_number(value, digits=6)] for name, value in values.items()],
    )
