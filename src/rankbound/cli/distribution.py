"""rankbound distribution: what a random ranking of a query would score."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.errors import ArgumentError

if TYPE_CHECKING:
    from rankbound.difficulty.distribution import Distribution

__all__ = ["distribution"]

_BINS, _WIDEST = 20, 50  # of the histogram


class Method(StrEnum):
    """How the distribution is computed."""

    auto = "auto"
    closed = "closed"
    enumeration = "enumeration"
    dynamic = "dynamic"
    sampled = "sampled"


def distribution(
    measure: Annotated[str, typer.Argument(help="A plain measure, as nDCG@10.", metavar="MEASURE")],
    n: Annotated[int | None, typer.Option("--n", metavar="N", help="Items of the query.")] = None,
    relevant: Annotated[int | None, typer.Option(metavar="P", help="How many of them are relevant.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="L,L,...", help="Or the label of each item.")] = None,
    method: Annotated[Method, typer.Option(help="auto takes the most exact one that is quick.")] = Method.auto,
    samples: Annotated[int, typer.Option(metavar="S", help="Orders to draw, for sampled distributions.")] = 300_000,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    ranker_strength: Annotated[
        float, typer.Option(metavar="W", help="Probability that a relevant item wins against another; 0.5 is random.")
    ] = 0.5,
    quantiles: Annotated[
        str, typer.Option(metavar="Q,Q,...", help="Shares of random orders.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    points: Annotated[int, typer.Option(metavar="K", help="With --json: most scores to list; more are binned.")] = 1000,
    as_json: options.Json = False,
) -> None:
    """The distribution of a measure under a random ranking: mean, spread, quantiles, and a picture.

    \b
    Examples:
      rankbound distribution nDCG --n 15 --relevant 5
      rankbound distribution AP --labels 2,0,1,0 --quantiles 0.5,0.99 --json
    """
    from rankbound.cli.bounds import parse_labels
    from rankbound.difficulty.bounds import bounds as bounds_of
    from rankbound.difficulty.distribution import distribution as distribution_of

    if labels is None and (n is None or relevant is None):
        raise ArgumentError("give --n and --relevant, or --labels")
    if points < 1:
        raise ArgumentError(f"points must be a whole number from 1 on, got {points}")
    asked = _shares(quantiles)
    given = None if labels is None else parse_labels(labels)
    with output.working("computing the distribution"):
        distribution = distribution_of(
            measure, n=n, relevant=relevant, labels=given, method=method.value, samples=samples, seed=seed,
            ranker_strength=ranker_strength,
        )  # fmt: skip
    three = bounds_of(measure, n=n, relevant=relevant, labels=given)
    at = {f"{q:g}": float(distribution.quantile(q)) for q in asked}
    if as_json:
        scores, probabilities = _binned(distribution, points)
        output.print_json(
            {
                "mean": distribution.mean,
                "std": distribution.std,
                "worst": three.worst,
                "best": three.best,
                "method": distribution.method,
                "quantiles": at,
                "scores": scores,
                "probabilities": probabilities,
            },
            indent=None,
        )
        return
    query = f"labels {labels}" if labels is not None else f"{n} items, {relevant} relevant"
    metadata = {"mean": distribution.mean, "std": distribution.std, "worst": three.worst, "best": three.best}
    rows = [[name, output.show_number(value, digits=6)] for name, value in metadata.items()]
    rows += [[f"quantile {q}", output.show_number(value, digits=6)] for q, value in at.items()]
    order = "a random ranking" if ranker_strength == 0.5 else f"a ranking ranker_strength to {ranker_strength:g}"
    output.print_table(f"{measure} of {order}: {query}", ["", "value"], rows, note=f"method: {distribution.method}")
    output.print_note(_picture(distribution))


def _shares(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0 <= share <= 1 for share in shares):
        raise ArgumentError(f"quantiles must be numbers from 0 to 1 with commas between, as 0.5,0.95; got {text!r}")
    return shares


def _binned(distribution: Distribution, bins: int) -> tuple[list[float], list[float]]:
    """Scores and probabilities; neighbors taken together, at their mean, where there are more scores than bins."""
    import numpy as np

    if len(distribution) <= bins:
        return distribution.scores.tolist(), distribution.probabilities.tolist()
    width = (distribution.scores[-1] - distribution.scores[0]) / bins
    bin_of = np.minimum(((distribution.scores - distribution.scores[0]) / width).astype(np.int64), bins - 1)
    mass = np.bincount(bin_of, distribution.probabilities, minlength=bins)
    moment = np.bincount(bin_of, distribution.probabilities * distribution.scores, minlength=bins)
    real = mass > 0
    return (moment[real] / mass[real]).tolist(), mass[real].tolist()


def _picture(distribution: Distribution) -> str:
    """A bar per bin, as long as its share."""
    import numpy as np

    if len(distribution) <= _BINS:
        names, shares = [f"{score:.4f}" for score in distribution.scores], distribution.probabilities
    else:
        edges = np.linspace(distribution.scores[0], distribution.scores[-1], _BINS + 1)
        bin_of = np.clip(np.searchsorted(edges, distribution.scores, side="right") - 1, 0, _BINS - 1)
        shares = np.bincount(bin_of, distribution.probabilities, minlength=_BINS).astype(np.float64)
        names = [f"{low:.4f} to {high:.4f}" for low, high in pairwise(edges)]
    room = max(map(len, names))
    bars = ["█" * round(_WIDEST * share / shares.max()) for share in shares]
    rows = zip(names, shares, bars, strict=True)
    return "\n".join(f"{name:>{room}} {share:8.4f} {bar}".rstrip() for name, share, bar in rows)
