"""rankbound distribution: the distribution of a measure under random ranking of one query."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError
from rankbound.report import numbers

if TYPE_CHECKING:
    from rankbound.difficulty.distribution import Distribution

_BINS, _WIDEST = 20, 50  # bins of the histogram, and characters of its longest bar


class Method(StrEnum):
    """How the distribution is computed."""

    auto = "auto"
    closed = "closed"
    enumeration = "enumeration"
    approximate = "approximate"
    dynamic = "dynamic"
    sampled = "sampled"


def distribution(
    measure: options.PlainMeasure,
    n: options.Items = None,
    relevant: options.Relevant = None,
    labels: options.Labels = None,
    depth: options.RanksFilled = None,
    method: Annotated[
        Method,
        typer.Option(help="How to compute the distribution; auto chooses the most exact method that is fast enough."),
    ] = Method.auto,
    samples: Annotated[
        int, typer.Option(metavar="S", help="Number of rankings to draw for --method sampled.")
    ] = 300_000,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    ranker_strength: Annotated[
        float,
        typer.Option(
            metavar="W", help="Probability that the ranker prefers a relevant item to another; 0.5 is random ranking."
        ),
    ] = 0.5,
    quantiles: Annotated[
        str, typer.Option(metavar="Q,Q,...", help="Quantiles to print, from 0 to 1.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    points: Annotated[
        int, typer.Option(metavar="K", help="With --json: largest number of scores to list; more are binned.")
    ] = 1000,
    as_json: options.Json = False,
) -> None:
    """Print the distribution of a measure under random ranking: mean, standard deviation, quantiles and a histogram.

    \b
    Examples:
      rankbound distribution nDCG --n 15 --relevant 5
      rankbound distribution AP --labels 2,0,1,0 --quantiles 0.5,0.99 --json
    """
    from rankbound.difficulty.bounds import bounds as bounds_of
    from rankbound.difficulty.distribution import distribution as distribution_of

    query = options.Query.parse(n, relevant, labels, depth)
    if points < 1:
        raise ArgumentError(f"--points must be a positive integer, got {points}")
    requested = _parse_quantiles(quantiles)
    with output.working("computing the distribution"):
        distribution = distribution_of(
            measure,
            **query._asdict(),
            method=method.value,
            samples=samples,
            seed=seed,
            ranker_strength=ranker_strength,
        )
    bounds = bounds_of(measure, **query._asdict())
    at = {f"{q:g}": float(distribution.quantile(q)) for q in requested}
    if as_json:
        scores, probabilities = _bin_scores(distribution, points)
        output.print_json(
            {
                "mean": distribution.mean,
                "std": distribution.std,
                "worst": bounds.worst,
                "best": bounds.best,
                "method": distribution.method,
                "quantiles": at,
                "scores": scores,
                "probabilities": probabilities,
            },
            indent=None,
        )
        return
    summary = {"mean": distribution.mean, "std": distribution.std, "worst": bounds.worst, "best": bounds.best}
    rows = [[name, numbers.show_number(value, digits=6)] for name, value in summary.items()]
    rows += [[f"quantile {q}", numbers.show_number(value, digits=6)] for q, value in at.items()]
    order = "a random ranking" if ranker_strength == 0.5 else f"a ranker of strength {ranker_strength:g}"
    output.print_table(f"{measure} of {order}: {query}", ["", "value"], rows, note=f"method: {distribution.method}")
    output.print_note(_histogram(distribution))


def _parse_quantiles(text: str) -> list[float]:
    try:
        quantiles = [float(quantile) for quantile in text.split(",")]
    except ValueError:
        quantiles = [-1.0]
    if not all(0 <= quantile <= 1 for quantile in quantiles):
        raise ArgumentError(
            f"--quantiles must be numbers from 0 to 1 separated by commas, such as 0.5,0.95, got {text!r}"
        )
    return quantiles


def _bin_scores(distribution: Distribution, bins: int) -> tuple[list[float], list[float]]:
    """Scores and probabilities; if there are more scores than bins, each bin has the mean of its scores."""
    import numpy as np

    if len(distribution) <= bins:
        return distribution.scores.tolist(), distribution.probabilities.tolist()
    width = (distribution.scores[-1] - distribution.scores[0]) / bins
    bin_of = np.minimum(((distribution.scores - distribution.scores[0]) / width).astype(np.int64), bins - 1)
    mass = np.bincount(bin_of, distribution.probabilities, minlength=bins)
    moment = np.bincount(bin_of, distribution.probabilities * distribution.scores, minlength=bins)
    real = mass > 0
    return (moment[real] / mass[real]).tolist(), mass[real].tolist()


def _histogram(distribution: Distribution) -> str:
    """One line per bin with a bar whose length is proportional to the probability of the bin."""
    import numpy as np

    if len(distribution) <= _BINS:
        names, masses = [f"{score:.4f}" for score in distribution.scores], distribution.probabilities
    else:
        edges = np.linspace(distribution.scores[0], distribution.scores[-1], _BINS + 1)
        bin_of = np.clip(np.searchsorted(edges, distribution.scores, side="right") - 1, 0, _BINS - 1)
        masses = np.bincount(bin_of, distribution.probabilities, minlength=_BINS).astype(np.float64)
        names = [f"{low:.4f} to {high:.4f}" for low, high in pairwise(edges)]
    width = max(map(len, names))
    bars = ["█" * round(_WIDEST * mass / masses.max()) for mass in masses]
    rows = zip(names, masses, bars, strict=True)
    return "\n".join(f"{name:>{width}} {mass:8.4f} {bar}".rstrip() for name, mass, bar in rows)
