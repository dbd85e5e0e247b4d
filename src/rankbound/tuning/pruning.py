"""Which trials end early: those whose best value falls behind the median of the trials before.

The rule is that of Golovin et al. ("Google Vizier: a service for black-box optimization", 2017) and of Optuna's
MedianPruner: at a rung, a trial ends if its best value so far is below the median of the best values that finished
trials of the same model had there. The thresholds travel with a trial, so that it needs no connection to the others.

Rungs count steps at a learning rate of 0.1 for boosting: a trial with half that rate is compared after twice as many
rounds, because otherwise every small learning rate would look bad.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankbound.tuning.log import TrialRecord

__all__ = ["RUNGS", "Watcher", "steps_per_rung_unit", "thresholds"]

RUNGS = (10, 20, 40, 80, 160, 320, 640, 1280)
_FEWEST = 4  # finished trials of a model before any is pruned
_RATE = 0.1
_SLOWEST, _FASTEST = 0.2, 5.0


def thresholds(finished: Sequence[TrialRecord]) -> dict[int, float]:
    """Return the median of the best values of complete trials at each rung; empty while there are too few.

    A trial that stopped before a rung because it no longer improved counts with its final value.
    """
    complete = [record for record in finished if record.status == "done" and record.curve]
    if len(complete) < _FEWEST:
        return {}
    highest = max(rung for record in complete for rung, _ in record.curve)
    return {
        rung: statistics.median(dict(record.curve).get(rung, record.value) for record in complete)
        for rung in RUNGS
        if rung <= highest
    }


def steps_per_rung_unit(model: str, params: Mapping[str, Any]) -> float:
    """Return the steps that count as one: 0.1 / learning_rate for boosting, between 0.2 and 5; 1 for other models.

    >>> steps_per_rung_unit("LambdaMART", {"learning_rate": 0.05}), steps_per_rung_unit("MLPRanker", {})
    (2.0, 1.0)
    """
    rate = params.get("learning_rate")
    if model not in ("LambdaMART", "BoostingRanker") or not isinstance(rate, (int, float)) or rate <= 0:
        return 1.0
    return min(max(_RATE / rate, _SLOWEST), _FASTEST)


class Watcher:
    """Follows the steps of one training: records the best values at the rungs, and says when to end.

    Parameters
    ----------
    limits:
        Threshold by rung.
    unit:
        Steps that count as one step of a rung.
    seconds_left:
        A function that returns the seconds until the budget is spent, or None where there is no limit.

    After the training, ``curve`` has the best value at each rung that was reached, and ``ended`` is "pruned", "stopped"
    (by the time budget) or "".
    """

    def __init__(self, limits: Mapping[int, float], unit: float, seconds_left: Any = None) -> None:
        self.curve: list[tuple[int, float]] = []
        self.ended = ""
        self._limits, self._unit, self._seconds_left = limits, unit, seconds_left
        self._best, self._last = float("-inf"), 0

    def __call__(self, step: int, value: float) -> bool:
        """Take the value of a step; True ends the training."""
        if step <= self._last:  # a further model of the same trial
            return False
        self._last, self._best = step, max(self._best, value)
        for rung in RUNGS[len(self.curve) :]:
            if step < rung * self._unit:
                break
            self.curve.append((rung, self._best))
            if self._best < self._limits.get(rung, float("-inf")):
                self.ended = "pruned"
                return True
        if self._seconds_left is not None and self._seconds_left() <= 0:
            self.ended = "stopped"
            return True
        return False
