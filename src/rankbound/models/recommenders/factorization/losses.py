"""Losses of users' lists for training from interactions: whole catalogs, or positives and drawn negatives.

Labels are 1 for the items of a user's interactions and 0 for all other items of the list. `Objective` hides the three
ways to compute a loss: softmax in NumPy on whole blocks, smooth measures at the positions of the positives, in a time
that is linear in the length of the list, and any other loss by its plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.losses import ListNetLoss, RankingLoss, SoftmaxLoss, get_loss
from rankbound.losses.smooth import has_positions, run_at_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray


def interaction_loss(loss: str | RankingLoss, bounding: str) -> RankingLoss:
    """Make the loss of a name and a bounding for lists with the labels 0 and 1.

    The names ``softmax`` and ``ListNet`` mean the cross entropy with labels that are normalized to a distribution. The
    softmax of the labels, which is ListNet's target elsewhere, is nearly uniform on long lists.
    """
    if isinstance(loss, RankingLoss):
        if bounding != "none":
            raise ArgumentError(f"bounding must be 'none' with a loss object, which has its own, got {bounding!r}")
        return SoftmaxLoss(normalize=True) if isinstance(loss, ListNetLoss) else loss
    if loss in ("softmax", "ListNet") and bounding == "none":
        return SoftmaxLoss(normalize=True)
    return get_loss(loss, **({} if bounding == "none" else {"bounding": bounding}))


class Objective:
    """The loss of each user's list, weighted, and its gradient in the scores.

    Parameters
    ----------
    loss:
        Any loss.
    starts, items:
        The positive items of all users.
    weights:
        One number per positive, or None. A softmax weights the positives of a user by them; the loss of a user is
        weighted by their mean.
    activity_exponent:
        The loss of a user with n positives is weighted by (n / mean n) ** activity_exponent, too.
    """

    def __init__(
        self,
        loss: RankingLoss,
        starts: NDArray[np.int64],
        items: NDArray[np.int32],
        weights: NDArray[Any] | None,
        activity_exponent: float = 0.0,
    ) -> None:
        self.loss, self.starts, self.items = loss, starts, items
        sizes = np.diff(starts)
        self._weights = None if weights is None else weights.astype(np.float64)
        sums = sizes.astype(np.float64)
        if self._weights is not None:
            sums = np.add.reduceat(np.append(self._weights, 0.0), starts[:-1]) * (sizes > 0)
        self.user_weights = sums / np.maximum(sizes, 1)
        self._softmax = loss if isinstance(loss, SoftmaxLoss) and loss.noise == 0 else None
        divisor = sums if self._softmax is not None and self._softmax.normalize else self.user_weights
        self._divisor = np.where(divisor > 0, divisor, 1.0).astype(np.float32)  # of the targets of a softmax
        if activity_exponent:
            self.user_weights *= (sizes / max(sizes[sizes > 0].mean(), 1)) ** activity_exponent

    @property
    def is_softmax(self) -> bool:
        """Whether the loss is a softmax, whose sampled negatives need a correction."""
        return self._softmax is not None

    def evaluate_catalog(self, scores: NDArray[np.float32], users: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the losses of users with the scores of all items [users, items], which become the gradient."""
        sizes = self.starts[users + 1] - self.starts[users]
        rows = _ranges(self.starts[users], sizes)
        catalog = scores.shape[1]
        offsets = np.arange(len(users) + 1, dtype=np.int64) * catalog
        if self._softmax is not None:
            return self._softmax_block(scores, users, rows, np.repeat(np.arange(len(users)), sizes))
        values, gradient = self._evaluate_positions(scores.ravel(), offsets, self.items[rows], sizes)
        weights = self.user_weights[users]
        np.multiply(gradient.reshape(scores.shape), weights[:, None].astype(np.float32), out=scores)
        return values * weights

    def evaluate_drawn_lists(
        self, scores: NDArray[np.float32], offsets: NDArray[np.int64], users: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Return the losses of lists that begin with the user's positive items, and their gradient."""
        sizes = self.starts[users + 1] - self.starts[users]
        weights = self.user_weights[users]
        if self._softmax is not None:
            values, gradient = self._softmax_lists(scores, offsets, users, sizes)
        else:
            values, gradient = self._evaluate_positions(scores, offsets, _ranges(np.zeros_like(sizes), sizes), sizes)
        gradient *= np.repeat(weights, np.diff(offsets)).astype(np.float32)
        return values * weights, gradient

    # ---- softmax -----------------------------------------------------------------------------------------------------

    def _softmax_block(
        self, scores: NDArray[np.float32], users: NDArray[np.int32], rows: NDArray[np.int64], row_users: NDArray[Any]
    ) -> NDArray[np.float64]:
        scale = np.float32(1 / self._softmax.temperature)  # type: ignore[union-attr]
        items, targets = self.items[rows], self._targets(rows, users[row_users])
        scores -= scores.max(axis=1, keepdims=True)
        scores *= scale
        fitted = np.bincount(row_users, targets * scores[row_users, items], minlength=len(users))
        totals = np.bincount(row_users, targets, minlength=len(users))
        np.exp(scores, out=scores)
        mass = scores.sum(axis=1)
        weights = self.user_weights[users]
        scores *= (scale * weights * totals / mass).astype(np.float32)[:, None]
        scores[row_users, items] -= scale * targets * weights[row_users].astype(np.float32)
        return np.asarray((totals * np.log(mass.astype(np.float64)) - fitted) * weights)

    def _softmax_lists(
        self, scores: NDArray[np.float32], offsets: NDArray[np.int64], users: NDArray[np.int32], sizes: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        scale = np.float32(1 / self._softmax.temperature)  # type: ignore[union-attr]
        lengths = np.diff(offsets)
        positives = _ranges(offsets[:-1], sizes)
        row_users = np.repeat(np.arange(len(users)), sizes)
        targets = self._targets(_ranges(self.starts[users], sizes), users[row_users])
        x = (scores - np.repeat(np.maximum.reduceat(scores, offsets[:-1]), lengths)) * scale
        fitted = np.bincount(row_users, targets * x[positives], minlength=len(users))
        totals = np.bincount(row_users, targets, minlength=len(users))
        gradient = np.exp(x)
        mass = np.add.reduceat(gradient.astype(np.float64), offsets[:-1])
        gradient *= np.repeat((scale * totals / mass).astype(np.float32), lengths)
        gradient[positives] -= scale * targets
        return np.asarray(totals * np.log(mass) - fitted), gradient

    def _targets(self, rows: NDArray[np.int64], users: NDArray[np.int32]) -> NDArray[np.float32]:
        """The targets of some rows, whose labels are all 1, so that every gain is 1, too; ``users`` are their users."""
        gains = np.ones(1, np.float32) if self._weights is None else self._weights[rows]
        return (gains / self._divisor[users]).astype(np.float32)

    # ---- other losses ------------------------------------------------------------------------------------------------

    def _evaluate_positions(
        self, scores: NDArray[np.float32], offsets: NDArray[np.int64], positions: NDArray[Any], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Return losses and gradient of lists whose positives are at positions, so many for each list."""
        if not has_positions(self.loss):
            labels = np.zeros(len(scores), np.int32)
            labels[positions + np.repeat(offsets[:-1], sizes)] = 1
            plan = self.loss.plan(labels, offsets)
            result = self.loss.value_and_gradient(scores, plan)
            return result.values, result.gradient
        result = run_at_positions(self.loss, scores, offsets, positions, sizes)  # type: ignore[arg-type]
        return result.values, result.gradient


def _ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return start, start + 1, ... of each range, one range after the other.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(sizes)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes))
