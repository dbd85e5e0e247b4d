"""Bad inputs of losses, objectives and metrics: one clear line, whatever the tool that calls them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("xgboost")

import torch

from rankbound.errors import RankboundError
from rankbound.integrations.lightgbm import lightgbm_metric
from rankbound.integrations.xgboost import xgboost_metric
from rankbound.losses import get_loss, gradient_and_hessian, lightgbm_objective, xgboost_objective

LABELS, SCORES, GROUP = [2.0, 0.0, 1.0, 0.0, 1.0], [0.3, 0.1, 0.2, 0.0, 0.5], [3, 2]
NAN, INF = float("nan"), float("inf")


def matrix(labels: object, group: object) -> object:
    import xgboost

    data = xgboost.DMatrix(np.zeros((len(LABELS), 1)), labels)
    if group is not None:
        data.set_group(group)
    return data


def offsets_of(group: object) -> object:
    return group if group is None or np.ndim(group) > 1 else np.concatenate(([0], np.cumsum(group)))


CALLS: dict[str, Callable[[object, object, object], object]] = {
    "objective of LightGBM": lambda scores, labels, group: lightgbm_objective("nDCG")(labels, scores, None, group),
    "metric of LightGBM": lambda scores, labels, group: lightgbm_metric()(labels, scores, None, group),
    "objective of XGBoost": lambda scores, labels, group: xgboost_objective("nDCG")(scores, matrix(labels, group)),
    "metric of XGBoost": lambda scores, labels, group: xgboost_metric()(scores, matrix(labels, group)),
    "gradient and hessian": lambda scores, labels, group: gradient_and_hessian(
        get_loss("nDCG"), scores, labels, offsets_of(group)
    ),
    "tensors": lambda scores, labels, group: get_loss("nDCG")(torch.tensor(scores), labels, offsets_of(group)),
}
# scores, labels, group
FAULTS: dict[str, tuple[object, object, object]] = {
    "too few scores": (SCORES[:-1], LABELS, GROUP),
    "too many scores": ([*SCORES, 1.0], LABELS, GROUP),
    "no scores": ([], LABELS, GROUP),
    "scores in a column": ([[score] for score in SCORES], LABELS, GROUP),
    "a score that is NaN": ([NAN, *SCORES[1:]], LABELS, GROUP),
    "an infinite score": ([INF, *SCORES[1:]], LABELS, GROUP),
    "scores that are complex": (np.array(SCORES) * 1j, LABELS, GROUP),
    "too few labels": (SCORES, LABELS[:-1], GROUP),
    "labels in rows": (SCORES, [LABELS, LABELS], GROUP),
    "a label that is NaN": (SCORES, [NAN, *LABELS[1:]], GROUP),
    "an infinite label": (SCORES, [INF, *LABELS[1:]], GROUP),
    "labels that are text": (SCORES, ["a", "b", "c", "d", "e"], GROUP),
    "groups that sum to less": (SCORES, LABELS, [3, 1]),
    "groups that sum to more": (SCORES, LABELS, [3, 3]),
    "a negative group": (SCORES, LABELS, [6, -1]),
    "groups with a fraction": (SCORES, LABELS, [2.5, 2.5]),
    "groups that are NaN": (SCORES, LABELS, [NAN, 2.0]),
    "no groups": (SCORES, LABELS, []),
    "groups that are missing": (SCORES, LABELS, None),
    "groups in rows": (SCORES, LABELS, [[3], [2]]),
}
# XGBoost itself refuses them, or, for the last one, takes the numbers as they come
NOT_IN_A_MATRIX = {
    "too few labels", "a label that is NaN", "an infinite label", "labels that are text", "a negative group",
    "groups in rows",
}  # fmt: skip


@pytest.mark.cases(len(CALLS))
@pytest.mark.parametrize("call", CALLS)
def test_wrong_arrays_are_refused(call):
    if "XGBoost" in call:
        pytest.importorskip("xgboost")
    for fault, (scores, labels, group) in FAULTS.items():
        if "XGBoost" in call and fault in NOT_IN_A_MATRIX:
            continue
        given = np.array(scores) if call == "tensors" or "XGBoost" in call else scores
        with pytest.raises(RankboundError) as caught:
            CALLS[call](given, labels, group)
        assert "\n" not in str(caught.value), fault
        assert len(str(caught.value)) < 400, fault
