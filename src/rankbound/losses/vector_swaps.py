"""Swap deltas in torch operations, for all lists of a bucket at once; the formulas are those of `swaps`.

What the deltas need of the present ranking is one entry per item, by one stable sort and a few running sums. From
these entries the deltas of a chunk of rows are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.losses import swaps

if TYPE_CHECKING:
    from rankbound.losses.buckets import Bucket, Layout

__all__ = ["Swaps", "ranks_of", "running"]

Form = tuple[Callable[[slice], Any], Callable[[], Any]]  # weights of a chunk of rows, and the measure


def ranks_of(bucket: Bucket, scores: Any) -> Any:
    """Rank of each item [queries, length], 1 for the highest score; ties keep their input order, padding is last.

    ``scores`` are those of all items, with one more entry for padding.
    """
    inverse = bucket.layout.kept(f"input order {id(bucket)}", lambda: torch.argsort(bucket.order, dim=1))
    in_input_order = scores[bucket.items.gather(1, inverse)]
    in_input_order = bucket.fill_padding(in_input_order, -math.inf)
    by_score = torch.sort(in_input_order, dim=1, descending=True, stable=True).indices
    return _inverted(by_score, bucket).gather(1, bucket.order) + 1


def _inverted(permutations: Any, bucket: Bucket) -> Any:
    """The inverse of each row of permutations of 0, 1, ..., length - 1."""
    return torch.empty_like(permutations).scatter_(1, permutations, bucket.columns.expand_as(permutations))


def running(combine: Callable[[Any, Any], Any], values: Any) -> Any:
    """Running sums, or what else a function combines, along the last dimension.

    The order of additions is fixed, which ``torch.cumsum`` does not promise on every device.
    """
    step = 1
    while step < values.shape[-1]:
        values = torch.cat([values[..., :step], combine(values[..., step:], values[..., :-step])], -1)
        step *= 2
    return values


def _before(values: Any, first: float) -> Any:
    """Running values without their own entry."""
    return torch.cat([torch.full_like(values[..., :1], first), values[..., :-1]], -1)


class Swaps:
    """Swap deltas of the present rankings of a bucket, and the measure of these rankings.

    ``weights(rows)`` are |change of the measure when items i and j swap| for a chunk of rows i and all columns j;
    entries that are no pairs are finite and mean nothing. ``measure()`` has one entry per list; for pairs it is the
    weight of the wrong pairs.
    """

    def __init__(self, bucket: Bucket, ranks: Any, mu: float) -> None:
        layout = bucket.layout
        self.bucket, self.ranks, self.mu = bucket, ranks, mu
        self._at = _inverted(ranks - 1, bucket)  # the item at each rank
        self._gains = bucket.exact_weights
        self._table = layout.kept("discounts", lambda: layout.on_device(layout.plan.discounts, exact=True))
        if layout.plan.swap == swaps.SWAP_PAIRS:
            self._full = self._discount = None
        else:
            self._full = self._table[ranks - 1] * bucket.inside
            self._discount = torch.where((bucket.cuts > 0) & (ranks > bucket.cuts), 0.0, self._full)
        self.weights, self.measure = _FORMS[layout.plan.swap](self)

    def by_rank(self, values: Any) -> Any:
        """Values of the items in the order of their ranks."""
        return values.gather(1, self._at)

    def by_item(self, values: Any) -> Any:
        """Values of the ranks in the order of the items, in the type of the scores."""
        return values.gather(1, self.ranks - 1).to(self.bucket.layout.dtype)

    def of_scores(self, values: Any) -> Any:
        """Values in the type of the scores."""
        return values.to(self.bucket.layout.dtype)

    # ---- forms -------------------------------------------------------------------------------------------------------

    def additive(self) -> Form:
        """|g_i - g_j| |d_i - d_j|."""
        gain, discount = self.of_scores(self._gains), self.of_scores(self._discount)

        def weights(rows: slice) -> Any:
            return (gain[:, rows, None] - gain[:, None, :]).mul_(discount[:, rows, None] - discount[:, None, :]).abs_()

        return weights, self._sum_of_discounts

    def published(self) -> Form:
        """g_i d_i."""
        return self._of_row(self._gains * self._discount), self._sum_of_discounts

    def loss1(self) -> Form:
        """g_i d_i without cutoff."""
        return self._of_row(self._gains * self._full), self._sum_of_discounts

    def loss2(self, with_swap: bool = False) -> Form:
        """|g_i - g_j| mu |d(m) - d(m + 1)| with m = |r_i - r_j|; with the swap delta in form 2++."""
        gain, discount, table = self.of_scores(self._gains), self.of_scores(self._discount), self._table
        by_distance = torch.zeros_like(table)  # at m - 1
        by_distance[:-1] = self.mu * (table[:-1] - table[1:]).abs()
        by_distance = self.of_scores(by_distance)

        def weights(rows: slice) -> Any:
            apart = (self.ranks[:, rows, None] - self.ranks[:, None, :]).abs_().sub_(1).clamp_(min=0)
            result = by_distance[apart]
            if with_swap:
                result += (discount[:, rows, None] - discount[:, None, :]).abs_()
            return result.mul_((gain[:, rows, None] - gain[:, None, :]).abs_())

        return weights, self._sum_of_discounts

    def loss2_with_swap(self) -> Form:
        """Form 2++."""
        return self.loss2(with_swap=True)

    def precision_sum(self) -> Form:
        """Relevant items i and others j; c relevant items and A the sum of their discounts down to a rank."""
        gain, discount = self.by_rank(self._gains), self.by_rank(self._discount)
        is_hit = (gain > 0).to(gain.dtype)
        count, passed = running(torch.add, is_hit), running(torch.add, is_hit * discount)
        measured = (gain * discount * count).sum(1)
        of_column = self.by_item(count * discount - passed)
        of_row = self.by_item(passed - count * discount)
        discount, factor = self.of_scores(self._discount), self.of_scores(self._gains)

        def weights(rows: slice) -> Any:
            result = (discount[:, None, :] - discount[:, rows, None]).mul_(self._is_above(rows))
            result.add_(of_column[:, None, :]).add_(of_row[:, rows, None])
            return result.abs_().mul_(factor[:, rows, None])

        return weights, lambda: measured

    def first_hit(self) -> Form:
        """The first relevant item moves to r_j, or the second one becomes the first."""
        gain, at_rank = self.by_rank(self._gains), self.by_rank(self._discount)
        is_hit = gain > 0
        count = running(torch.add, is_hit.to(gain.dtype))
        first = (at_rank * (is_hit & (count == 1))).sum(1)
        second = (at_rank * (is_hit & (count == 2))).sum(1)
        discount = self.of_scores(self._discount)
        top, next_one = self.of_scores(first)[:, None], self.of_scores(second)[:, None]
        is_first = (discount == top) & (discount > 0)
        raised = (discount - top).clamp_(min=0)
        lowered = top - torch.maximum(discount, next_one)

        def weights(rows: slice) -> Any:
            return torch.where(
                self._is_above(rows), raised[:, None, :], lowered[:, None, :] * is_first[:, rows, None]
            )  # fmt: skip

        return weights, lambda: first

    def cascade(self) -> Form:
        """Stop probabilities; the first certain stop is passed over to see what follows it."""
        stop, discount = self.by_rank(self._gains), self.by_rank(self._discount)
        certain = stop >= 1
        is_first = certain & (running(torch.add, certain.to(stop.dtype)) == 1)
        is_after = (running(torch.add, certain.to(stop.dtype)) >= 1) & ~is_first
        probability = _before(running(torch.mul, 1 - torch.where(is_first, 0.0, stop)), 1.0)
        reached = torch.where(is_after, 0.0, discount * probability)
        total = running(torch.add, reached * stop)
        passed = torch.where(is_after, discount * probability, 0.0)
        beyond = _before(running(torch.add, passed * stop), 0.0) + passed
        here, upto = self.by_item(reached), self.by_item(total)
        before, after = self.by_item(_before(total, 0.0) + reached), self.by_item(beyond)
        inverse = self.by_item(torch.where(certain, 0.0, 1 / (1 - torch.where(certain, 0.0, stop))))
        is_stop, gain = is_first.gather(1, self.ranks - 1), self.of_scores(self._gains)

        def weights(rows: slice) -> Any:
            above = self._is_above(rows)  # whether j is the upper item
            between = torch.where(
                above, before[:, rows, None] - upto[:, None, :], before[:, None, :] - upto[:, rows, None]
            )
            between.mul_(torch.where(above, inverse[:, None, :], inverse[:, rows, None]))
            upper_stops = torch.where(above, is_stop[:, None, :], is_stop[:, rows, None])
            between = torch.where(
                upper_stops, torch.where(above, after[:, rows, None], after[:, None, :]), between
            )  # fmt: skip
            result = torch.where(above, here[:, None, :], here[:, rows, None]).sub_(between)
            return result.mul_(gain[:, None, :] - gain[:, rows, None]).abs_()

        return weights, lambda: total[:, -1]

    def pairs(self) -> Form:
        """Sums S of the signed weights of an item's level and the items down to a rank, for every level of a list."""
        levels, signed = _levels(self.bucket)
        sums = self._sums_of_levels(levels, signed)
        own = sums.gather(1, levels[:, None, :])[:, 0]
        shape = (len(own), -1, self.bucket.length)

        def weights(rows: slice) -> Any:
            of_row = sums.gather(1, levels[:, rows, None].expand(shape))
            count = of_row.shape[1]
            at_row = sums[:, :, rows].gather(1, levels[:, :, None].expand(-1, -1, count)).transpose(1, 2)
            return of_row.add_(at_row).sub_(own[:, rows, None]).sub_(own[:, None, :]).abs_()

        def measure() -> Any:
            wrong = self._sums_of_levels(levels, signed.clamp(min=0)).gather(1, levels[:, None, :])[:, 0]
            return (wrong * self.bucket.inside).sum(1)

        return weights, measure

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _sum_of_discounts(self) -> Any:
        return (self._gains * self._discount).sum(1)

    def _of_row(self, values: Any) -> Callable[[slice], Any]:
        values = self.of_scores(values)
        return lambda rows: values[:, rows, None].repeat(1, 1, self.bucket.length)

    def _is_above(self, rows: slice) -> Any:
        """Whether column j has a better rank than row i."""
        return self.ranks[:, None, :] < self.ranks[:, rows, None]

    def _sums_of_levels(self, levels: Any, signed: Any) -> Any:
        """S [queries, levels, length] of the items."""
        shape = (-1, signed.shape[1], -1)
        at_rank = self.by_rank(levels)[:, None, :].expand(shape)
        sums = running(torch.add, signed.gather(2, at_rank) * self.by_rank(self.bucket.inside)[:, None, :])
        return self.of_scores(sums.gather(2, (self.ranks - 1)[:, None, :].expand(shape)))


def _levels(bucket: Bucket) -> tuple[Any, Any]:
    """The level of each item within its list, 0 the highest, and the signed weights of two levels [queries, L, L]."""
    layout = bucket.layout
    if "levels in list" not in bucket.tensors:
        levels = layout.kept("levels in list", lambda: layout.on_device(_levels_in_lists(layout)))
        bucket.tensors["levels in list"] = levels[bucket.slots]
        bucket.tensors["signed weights"] = layout.on_device(_signed_weights(bucket), exact=True)
    return bucket.tensors["levels in list"], bucket.tensors["signed weights"]


def _levels_in_lists(layout: Layout) -> Any:
    """The level of each entry of the plan's order within its list, and a 0 for padding."""
    plan = layout.plan
    changes = np.zeros(len(plan.order) + 1, np.int64)
    changes[1:-1] = plan.columns_from[1:] != plan.columns_from[:-1]
    changes[plan.offsets[:-1]] = 0
    sums = np.cumsum(changes)
    levels = sums[:-1] - plan.per_item(sums[plan.offsets[:-1]])
    return np.append(levels, 0)


def _signed_weights(bucket: Bucket) -> Any:
    """Weight of a higher and a lower level of each list, negative if the first is the lower one."""
    plan = bucket.layout.plan
    levels = _levels_in_lists(bucket.layout)[:-1]
    most = 1 + int(levels[plan.offsets[bucket.queries + 1] - 1].max())
    signed = np.broadcast_to(np.triu(np.ones((most, most)), 1), (len(bucket.queries), most, most))
    if plan.pair_weights is not None:
        codes = np.zeros((len(plan.rows), most), np.int64)
        codes[plan.per_item(np.arange(len(plan.rows))), np.minimum(levels, most - 1)] = plan.levels
        codes = codes[bucket.queries]
        signed = signed * plan.pair_weights[codes[:, :, None], codes[:, None, :]]
    return signed - signed.transpose(0, 2, 1)


_FORMS: dict[int, Callable[[Swaps], Form]] = {
    swaps.SWAP_ADDITIVE: Swaps.additive,
    swaps.SWAP_PUBLISHED: Swaps.published,
    swaps.SWAP_PRECISION_SUM: Swaps.precision_sum,
    swaps.SWAP_FIRST_HIT: Swaps.first_hit,
    swaps.SWAP_CASCADE: Swaps.cascade,
    swaps.SWAP_PAIRS: Swaps.pairs,
    swaps.SWAP_LOSS1: Swaps.loss1,
    swaps.SWAP_LOSS2: Swaps.loss2,
    swaps.SWAP_LOSS2PP: Swaps.loss2_with_swap,
}
