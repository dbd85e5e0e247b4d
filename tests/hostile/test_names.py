"""Names and settings: anything that is not one is refused by an error of ours, whatever its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rankbound as rb
from rankbound import losses
from rankbound.errors import RankboundError
from tests.tiers import some

NO_NAMES = [
    None, "", " ", "word", "nDCG@0", "nDCG@-1", "nDCG@1e3", "nDCG@9999999999", "nDCG@٣", "AP(rel=nan)", "AP(rel=inf)",
    "RBP(p=nan)", "ERR(max_rel=1e308)", "ERR(max_rel=inf)", "nDCG\0", "UL2(UL2(nDCG))", "(" * 500, 3, 0.5, float("nan"),
    b"nDCG", [], ["nDCG"], {}, {"nDCG"}, np.array(["nDCG"]), np.array("nDCG"), object(), rb.Lists,
]  # fmt: skip
NO_COUNTS = [
    0, -1, 0.5, 2.0, float("nan"), float("inf"), "3", b"3", [3], np.array([3, 4]), np.array(3.0), object(), 1 + 0j, {},
]  # fmt: skip
NO_FRACTIONS = [0, -1, 2, float("nan"), float("inf"), "0.1", [0.1], None, np.array([0.1, 0.2])]


def assert_refused(take: Callable[[Any], Any], values: list[Any]) -> None:
    """Every value is refused by an error of ours; the message of a failure lists those that are not."""
    outcomes = {}
    for number, value in enumerate(values):
        try:
            take(value)
        except RankboundError:
            continue
        except Exception as error:
            outcomes[number] = f"{value!r:.60}: {error!r}"
        else:
            outcomes[number] = f"{value!r:.60}: was taken"
    assert not outcomes, "\n".join(outcomes.values())


@pytest.mark.cases(100)
@pytest.mark.parametrize(
    "take",
    [
        rb.parse_measure,
        rb.difficulty.get_bounding,
        losses.get_loss,
        lambda name: rb.bounds(name, n=3, relevant=1),
        lambda name: rb.distribution(name, n=3, relevant=1),
        lambda name: rb.evaluate(rb.Lists([1, 0], [0, 2], [0.5, 0.25]), [name]),
        lambda name: rb.evaluate(rb.Lists([1, 0], [0, 2], [0.5, 0.25]), ["AP"], ties=name),
        lambda name: rb.evaluate(rb.Lists([1, 0], [0, 2], [0.5, 0.25]), ["AP"], empty=name),
        lambda name: rb.difficulty_weights([1, 0], [0, 0], measure=name),
        lambda name: rb.difficulty_weights([1, 0], [0, 0], bounding=name),
        lambda name: rb.difficulty_weights([1, 0], [0, 0], per=name),
        lambda name: rb.difficulty_weights([1, 0], [0, 0], form=name),
        lambda name: losses.NDCGLoss(reduction=name),
        lambda name: losses.NDCGLoss(bounding=name),
        lambda name: losses.NDCGLoss(sigmoid=name),
        lambda name: losses.LambdaRankLoss(name),
    ],
    ids=lambda take: "",
)
def test_what_is_no_name_is_refused(take: Callable[[Any], Any]) -> None:
    assert_refused(take, some(NO_NAMES, 8))


@pytest.mark.cases(100)
@pytest.mark.parametrize(
    "take",
    [
        lambda k: losses.NDCGLoss(k),
        lambda depth: rb.evaluate(rb.Lists([1, 0], [0, 2], [0.5, 0.25]), ["AP"], depth=depth),
        lambda samples: rb.distribution("nDCG", n=3, relevant=1, samples=samples),
        lambda count: rb.compare(*([rb.Lists([1, 0], [0, 2], [0.5, 0.25])] * 2), measures="AP", resamples=count),
        lambda count: losses.set_threads(count),
        lambda count: rb.models.QueryKFold(count),
    ],
    ids=["k", "depth", "samples", "resamples", "threads", "n_splits"],
)
def test_what_is_no_count_is_refused(take: Callable[[Any], Any]) -> None:
    assert_refused(take, some(NO_COUNTS, 6))


@pytest.mark.cases(100)
@pytest.mark.parametrize(
    "take",
    [
        lambda number: rb.query_types([0.5], [0.25], 1.0, 0.0, quota=0 if number is None else number),
        lambda number: rb.query_types([0.5], [0.25], 1.0, 0.0, high=number),
        lambda number: rb.distribution("nDCG", n=3, relevant=1, ranker_strength=number),
        lambda number: losses.NRBPLoss(p=number) if number is not None else losses.NRBPLoss(p=0),
        lambda number: rb.Inference(confidence=number),
    ],
    ids=["quota", "high", "ranker_strength", "p", "confidence"],
)
def test_a_number_outside_of_0_to_1_is_refused(take: Callable[[Any], Any]) -> None:
    assert_refused(take, NO_FRACTIONS)
