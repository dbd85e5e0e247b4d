"""Losses by name, for the command line, experiment files and boosting objectives."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rankbound.errors import ArgumentError, MeasureError
from rankbound.losses.base import RankingLoss
from rankbound.losses.listwise import ListMLELoss, ListNetLoss, PointwiseLoss
from rankbound.losses.pairwise import LAMBDA_MEASURES, DirectRankerLoss, LambdaLoss, RankNetLoss
from rankbound.losses.smooth import APLoss, KendallTauLoss, NDCGLoss, NRBPLoss, PrecisionLoss, RRLoss, SoftRankLoss
from rankbound.measures.measure import Measure, parse_measure

__all__ = ["LOSS_NAMES", "get_loss", "warm_up"]

_PLAIN: dict[str, tuple[type[RankingLoss], dict[str, Any]]] = {
    "RankNet": (RankNetLoss, {}),
    "DirectRanker": (DirectRankerLoss, {}),
    "ListNet": (ListNetLoss, {}),
    "ListMLE": (ListMLELoss, {}),
    "SoftRank": (SoftRankLoss, {}),
    "regression": (PointwiseLoss, {"kind": "regression"}),
    "classification": (PointwiseLoss, {"kind": "classification"}),
}
_SMOOTH = ("nDCG", "AP", "RR", "nRBP", "U", "P", "Tau")
LOSS_NAMES = (*_SMOOTH, *(f"lambda-{name}" for name in LAMBDA_MEASURES), *_PLAIN)


def get_loss(name: str | RankingLoss, **options: Any) -> RankingLoss:
    """The loss of a name, with the options of its class.

    A measure gives its smooth loss: ``nDCG``, ``nDCG@10``, ``AP(rel=2)``, ``RR``, ``P@5``, ``Tau``, ``U``; ``nRBP``
    is U, the loss behind nRBP for every persistence, and ``nRBP(p=0.95)`` the smooth measure itself. ``lambda-``
    before nDCG, AP, RR, nRBP, P or ERR gives its lambda loss. The gain of nDCG is 2^label - 1, as in the papers on
    losses; ``gain="linear"`` changes it.

    >>> get_loss("nDCG@10", bounding="min-max").target
    Measure(family='nDCG', cutoff=10, settings=(('dcg', 'exp-log2'),), bounding='none')
    >>> type(get_loss("lambda-AP")).__name__, type(get_loss("nRBP")).__name__, get_loss("AP(rel=2)").rel
    ('LambdaLoss', 'NRBPLoss', 2)
    """
    if isinstance(name, RankingLoss):
        if options:
            raise ArgumentError(f"options go with a loss's name, got a {type(name).__name__} and {', '.join(options)}")
        return name
    if not isinstance(name, str):
        raise ArgumentError(f"loss must be one of {', '.join(LOSS_NAMES)}, got {name!r}")
    if name in _PLAIN:
        loss, preset = _PLAIN[name]
        return _make(loss, name, preset | options)
    if name.startswith("lambda-"):
        return _make(LambdaLoss, name, {"measure": name.removeprefix("lambda-")} | options)
    try:
        measure = parse_measure(name)
    except MeasureError as error:
        raise ArgumentError(f"loss must be one of {', '.join(LOSS_NAMES)}, got {name!r}: {error}") from error
    if measure.name not in _SMOOTH or measure.bounding != "none":
        raise ArgumentError(f"loss must be one of {', '.join(LOSS_NAMES)}, got {name!r}")
    return _smooth(measure, name, options)


def _smooth(measure: Measure, name: str, options: dict[str, Any]) -> RankingLoss:
    given = dict(measure.settings)
    preset: dict[str, Any] = {"k": measure.cutoff} if measure.cutoff else {}
    if "rel" in given:
        preset["rel"] = given.pop("rel")
    if "p" in given:
        preset["p"] = given.pop("p")
    given.pop("dcg", None)  # exp is what the losses use anyway
    if given:
        raise ArgumentError(f"no loss has the parameter {next(iter(given))!r} of {name!r}")
    classes: dict[str, type[RankingLoss]] = {
        "nDCG": NDCGLoss,
        "AP": APLoss,
        "RR": RRLoss,
        "nRBP": NRBPLoss,
        "U": NRBPLoss,
        "P": PrecisionLoss,
        "Tau": KendallTauLoss,
    }
    return _make(classes[measure.name], name, preset | options)


def _make(loss: type[RankingLoss], name: str, options: dict[str, Any]) -> RankingLoss:
    try:
        return loss(**options)
    except TypeError as error:
        raise ArgumentError(f"the loss {name!r} does not take these options: {error}") from error


def warm_up(*losses: str | RankingLoss) -> float:
    """Compile the float32 kernels of losses (by default smooth and pairwise ones) or load them; gives the seconds.

    The first call on a machine compiles, later processes load. Worth a message to whoever waits.
    """
    began = time.perf_counter()
    scores = np.zeros(3, dtype=np.float32)
    for given in losses or ("nDCG", "RankNet"):
        loss = get_loss(given)
        loss.value_and_gradient(scores, loss.plan([1, 0, 0], [0, 3]))
    return time.perf_counter() - began
