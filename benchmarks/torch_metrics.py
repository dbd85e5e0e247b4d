"""Metrics of torchmetrics: the mean nDCG of flat tensors, update and compute."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.comparison import Peer, compare_with_peers, is_installed, missing
from benchmarks.curves import OURS, Curve, Implementation, growth_of
from benchmarks.evaluation import arrays
from benchmarks.records import Finding
from benchmarks.timing import Work

__all__ = ["CURVES", "INPUTS", "run"]

INPUTS = (
    "generated labels 0 to 4 and 32-bit scores as flat tensors with the query of each item; one update, one compute"
)
_PEER = "RetrievalNormalizedDCG of torchmetrics"


def make(queries: int, items: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores, labels and queries of all items."""
    labels, scores = arrays(queries, items)
    query = np.repeat(np.arange(queries), items)
    return torch.from_numpy(scores.ravel()).float(), torch.from_numpy(labels.ravel()), torch.from_numpy(query)


def ours(made: Any) -> Work:
    from rankbound.integrations import RankingMetric

    return partial(_measure, partial(RankingMetric, "nDCG"), made)


def theirs(made: Any) -> Work:
    from torchmetrics.retrieval import RetrievalNormalizedDCG

    return partial(_measure, RetrievalNormalizedDCG, made)


def _measure(make_metric: Any, made: Any) -> float:
    scores, labels, query = made
    metric = make_metric()
    metric.update(scores, labels, indexes=query)
    return float(metric.compute())


def run(quick: bool) -> Iterator[Finding]:
    """Yield a row for each shape, then the growth curve; our metric needs torchmetrics too."""
    if not is_installed("torchmetrics"):
        yield missing("torchmetrics")
        return
    for queries, items in ((40, 10),) if quick else ((8_000, 40), (500, 1_000)):
        made = make(queries, items)
        bar = 50 if items == 40 else None
        peers = [Peer(_PEER, partial(theirs, made), bar, "torchmetrics", np.asarray)]
        name = f"nDCG, {queries:,} x {items:,}, update and compute"
        yield from compare_with_peers(name, ours(made), peers, turns=1 if quick else 3, values=np.asarray)
    yield from growth_of(__name__, CURVES, quick)


CURVES = [
    Curve(
        "mean nDCG of lists of 40",
        "queries",
        (500, 1_000, 2_000, 4_000, 8_000),
        (10, 20),
        lambda queries, _: make(queries, 40),
        {OURS: Implementation(ours), _PEER: Implementation(theirs, module="torchmetrics")},
    )
]
