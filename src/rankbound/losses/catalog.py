"""Losses by name, for the command line, experiment files and boosting objectives."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rankbound.errors import ArgumentError, MeasureError
from rankbound.losses.base import RankingLoss
from rankbound.losses.listwise import (
    DistillationLoss,
    ListMLELoss,
    ListNetLoss,
    PointwiseLoss,
    SoftmaxLoss,
    XENDCGLoss,
)
from rankbound.losses.pairwise import DirectRankerLoss, LambdaLoss, LambdaRankLoss, RankNetLoss
from rankbound.losses.smooth import NAMED_LOSSES, SmoothMeasureLoss, SoftRankLoss
from rankbound.losses.structures import has_loss, measures_with_loss
from rankbound.measures.measure import Measure, parse_measure

_OTHER: dict[str, tuple[type[RankingLoss], dict[str, Any]]] = {
    "RankNet": (RankNetLoss, {}),
    "DirectRanker": (DirectRankerLoss, {}),
    "NDCG-Loss1": (LambdaLoss, {"form": "1"}),
    "NDCG-Loss2": (LambdaLoss, {"form": "2"}),
    "NDCG-Loss2++": (LambdaLoss, {"form": "2++"}),
    "softmax": (SoftmaxLoss, {}),
    "XE-NDCG": (XENDCGLoss, {}),
    "ListNet": (ListNetLoss, {}),
    "ListMLE": (ListMLELoss, {}),
    "SoftRank": (SoftRankLoss, {}),
    "distillation": (DistillationLoss, {"kind": "listwise"}),
    "distillation-pairs": (DistillationLoss, {"kind": "pairwise"}),
    "regression": (PointwiseLoss, {"kind": "regression"}),
    "classification": (PointwiseLoss, {"kind": "classification"}),
}
_LAMBDA = "lambda-"
_NOISY = "noisy-lambda-"
_NOISY_OPTIONS = {"truncation": 30, "normalization": "sqrt", "noise": 2.0}


def loss_names(k: int | None = None) -> tuple[str, ...]:
    """The names of all losses: measures, measures with ``lambda-`` before them, and losses without a measure.

    Measures that need a cutoff are listed with the cutoff k, or without any if k is None. Users' own measures are
    included once they are registered.

    >>> "MAP" in loss_names(), "P@5" in loss_names(5), "lambda-P" in loss_names()
    (False, True, True)
    """
    measures = measures_with_loss(k)
    return (*measures, *(f"{_LAMBDA}{name}" for name in measures), *_OTHER)


def get_loss(name: str | Measure | RankingLoss, **options: Any) -> RankingLoss:
    """Make the loss of a name, with the options of its class.

    A measure stands for its smooth loss: ``nDCG``, ``nDCG@10``, ``AP(rel=2)``, ``RR``, ``P@5``, ``Tau``, or a measure
    of your own, ``MyDCG@10``; ``nRBP`` is U, the loss behind nRBP for every persistence, and ``nRBP(p=0.95)`` the
    smooth measure itself. ``lambda-`` before any of these gives its `LambdaRankLoss`, and ``noisy-lambda-`` the same
    with ``truncation=30``, ``normalization="sqrt"`` and ``noise=2.0``, unless the options say otherwise. The gain of
    nDCG and DCG is 2^label - 1, as in the papers on losses; ``gain="linear"`` changes it. See `loss_names` for all
    names.

    >>> print(get_loss("nDCG@10", bounding="min-max").target)
    nDCG(dcg='exp-log2')@10
    >>> type(get_loss("lambda-AP")).__name__, type(get_loss("nRBP")).__name__, get_loss("AP(rel=2)").rel
    ('LambdaRankLoss', 'NRBPLoss', 2)
    >>> get_loss("noisy-lambda-nDCG@10", noise=0.5).truncation
    30
    >>> get_loss("bpref")
    Traceback (most recent call last):
    rankbound.errors.ArgumentError: loss must be one of nDCG, DCG, ...
    """
    if isinstance(name, RankingLoss):
        if options:
            raise ArgumentError(f"options need the name of a loss, got {type(name).__name__} and {', '.join(options)}")
        return name
    if isinstance(name, Measure):
        name = str(name)
    if not isinstance(name, str):
        raise ArgumentError(f"loss must be one of {', '.join(loss_names())}, got {name!r}")
    if name in _OTHER:
        loss, preset = _OTHER[name]
        return _make(loss, name, preset | options)
    text = name.removeprefix(_NOISY).removeprefix(_LAMBDA)
    try:
        measure = parse_measure(text)
    except MeasureError as error:
        raise ArgumentError(f"loss must be one of {', '.join(loss_names())}, got {name!r}: {error}") from error
    if not has_loss(measure):
        raise ArgumentError(f"loss must be one of {', '.join(loss_names())}, got {name!r}")
    if name != text:
        preset = _NOISY_OPTIONS if name.startswith(_NOISY) else {}
        return _make(LambdaRankLoss, name, {"measure": text} | preset | options)
    return _smooth(measure, name, options)


def _smooth(measure: Measure, name: str, options: dict[str, Any]) -> RankingLoss:
    """The loss named after the measure, if there is one with its settings; else the generic one."""
    named = NAMED_LOSSES.get(measure.name)
    if named is not None and (preset := named.options_of(measure, name)) is not None:
        return _make(named, name, preset | options)
    gain = {"gain": "exp"} if "dcg" in measure.definition.parameters else {}
    return _make(SmoothMeasureLoss, name, {"measure": name} | gain | options)


def _make(loss: type[RankingLoss], name: str, options: dict[str, Any]) -> RankingLoss:
    try:
        return loss(**options)
    except TypeError as error:
        raise ArgumentError(f"the loss {name!r} does not take these options: {error}") from error


def warm_up(*losses: str | RankingLoss) -> float:
    """Compute losses once (by default nDCG and RankNet), so that what they need is loaded; returns the seconds taken.

    Kernels are compiled when the package is installed, so this takes a moment.
    """
    began = time.perf_counter()
    scores = np.zeros(3, dtype=np.float32)
    for name in losses or ("nDCG", "RankNet"):
        loss = get_loss(name)
        loss.value_and_gradient(scores, loss.plan([1, 0, 0], [0, 3]))
    return time.perf_counter() - began
