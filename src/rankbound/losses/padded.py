"""Lists in padded tables: how the formulas of `rankbound.losses.formulas` are evaluated and differentiated.

Lists of similar length share a `Bucket`. A formula gets a bucket and its scores, a table [lists, length], and returns a
value per list; torch differentiates it. What a formula needs of pairs, it gets from `Bucket.pairs`: a function of the
table of differences x_j - x_i, [lists, rows, length], that returns sums over the columns j. Tables are made for chunks
of rows that fit into `pair_memory`. If a bucket has several chunks, none is stored: each is computed again when its
derivative is needed. Padding is at most a quarter of the pairs of a bucket, or so few pairs that another bucket would
cost more.

Second derivatives are sums over pairs, too: a curvature that is positive, see `Bucket.pairs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rankbound.losses.device_settings import pair_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.base import RankingLoss
    from rankbound.losses.plans import Plan

    PairFunction = Callable[[Tensor, slice], tuple[Tensor, ...]]
    Curvature = Callable[[Tensor, Tensor, slice, tuple[Tensor, ...]], Tensor]

_PADDING, _FEW_PAIRS = 0.25, 30_000  # padding of a bucket: this fraction of its pairs, or so many


@dataclass(eq=False)
class Layout:
    """The informative lists of a plan in buckets on a device; made once per plan, device and type of the scores.

    ``tables`` is the number of tables of pairs, in the type of the scores, that exist at a time. ``exact`` is the type
    of sums: float64, except on devices that have none.
    """

    plan: Any  # a `Plan`; formulas know what theirs has
    device: Any
    dtype: Any
    rows: NDArray[np.int64]
    tables: float
    buckets: list[Bucket] = field(default_factory=list)
    tensors: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan, items = self.plan, len(self.plan.labels)
        self.exact = torch.float32 if self.device.type == "mps" else torch.float64
        elements = int(pair_memory(self.device) * 2**20 / (self.tables * self.dtype.itemsize))
        from_items, from_queries, positions, lists = np.zeros(items, np.int64), np.zeros(len(plan.rows), np.int64), 0, 0
        sorted_items = plan.order + plan.per_item(plan.offsets[:-1])
        for queries in _pack(plan.sizes, self.rows, np.flatnonzero(plan.active), elements):
            length, rows = int(plan.sizes[queries].max()), int(self.rows[queries].max())
            is_item = np.arange(length) < plan.sizes[queries, None]
            slots = np.where(is_item, plan.offsets[:-1][queries, None] + np.arange(length), items)
            from_items[sorted_items[slots[is_item]]] = positions + np.flatnonzero(is_item)
            from_queries[queries] = lists + np.arange(len(queries))
            positions, lists = positions + is_item.size, lists + len(queries)
            at_once = max(1, min(rows, elements // (len(queries) * length)))
            positions_of_items = np.append(sorted_items, items)[slots]
            self.buckets.append(
                Bucket(
                    self,
                    queries,
                    length,
                    rows,
                    at_once,
                    self.on_device(slots),
                    self.on_device(positions_of_items),
                    None if is_item.all() else self.on_device(is_item),
                )
            )
        self.per_item = self.on_device(np.repeat(np.arange(len(plan.rows)), plan.sizes))
        self._from_items = self.on_device(np.where(plan.per_item(plan.active), from_items, positions))
        self._from_queries = self.on_device(np.where(plan.active, from_queries, lists))

    def on_device(self, array: NDArray[Any], exact: bool = False) -> Tensor:
        """A copy of an array of the plan; numbers in the type of the scores, or in the exact type."""
        tensor = torch.from_numpy(np.array(array))
        if array.dtype.kind == "f":
            tensor = tensor.to(self.exact if exact else self.dtype)
        return tensor.to(self.device)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """A tensor, or several, that is made once for this layout."""
        if name not in self.tensors:
            self.tensors[name] = make()
        return self.tensors[name]

    def join_queries(self, parts: list[Tensor]) -> Tensor:
        """One number per list of all buckets as one per query, 0 for queries that are not informative."""
        none = torch.zeros(1, dtype=self.exact, device=self.device)
        return torch.cat([*(part.to(self.exact) for part in parts), none])[self._from_queries]

    def join_items(self, parts: list[Tensor]) -> Tensor:
        """Tables of all buckets as one number per item, in input order. Nothing is scattered, so that the result does
        not depend on the order in which a device writes."""
        none = torch.zeros(1, dtype=self.dtype, device=self.device)
        return torch.cat([*(part.to(self.dtype).reshape(-1) for part in parts), none])[self._from_items]


@dataclass(eq=False)
class Bucket:
    """Some lists of a layout, padded to ``length`` items and ``rows`` rows; items come in the order of the plan.

    ``slots`` [lists, length] are positions in the sorted arrays of the plan and ``items`` positions in its input order,
    both beyond the end for padding. ``is_item`` is None if there is no padding.
    """

    layout: Layout
    queries: NDArray[np.int64]
    length: int
    rows: int
    rows_at_once: int
    slots: Tensor
    items: Tensor
    is_item: Tensor | None
    hessian: Tensor | None = None  # collects curvatures, if they are requested
    tensors: dict[str, Any] = field(default_factory=dict)

    def of_items(self, name: str, array: NDArray[Any], padding: float = 0, exact: bool = False) -> Tensor:
        """An array of the plan, one entry per item in its sorted order, as a table [lists, length]."""
        if name not in self.tensors:
            padded = np.append(array, array.dtype.type(padding))
            self.tensors[name] = self.layout.keep(name, lambda: self.layout.on_device(padded, exact))[self.slots]
        return self.tensors[name]

    def of_queries(self, name: str, array: NDArray[Any], exact: bool = True) -> Tensor:
        """An array of the plan with one entry per query, as a column [lists, 1]."""
        if name not in self.tensors:
            self.tensors[name] = self.layout.on_device(np.asarray(array)[self.queries], exact)[:, None]
        return self.tensors[name]

    def fill_padding(self, table: Tensor, value: float) -> Tensor:
        """The table with a value in place of padding."""
        return table if self.is_item is None else torch.where(self.is_item, table, value)

    @property
    def is_row(self) -> Tensor:
        """Whether each of the first ``rows`` entries is a row of its list."""
        if "is row" not in self.tensors:
            counts = self.of_queries("row counts", self.layout.rows)
            self.tensors["is row"] = torch.arange(self.rows, device=self.layout.device) < counts
        return self.tensors["is row"]

    def chunks(self) -> Iterator[slice]:
        """The rows whose tables exist at the same time."""
        for start in range(0, self.rows, self.rows_at_once):
            yield slice(start, min(start + self.rows_at_once, self.rows))

    def pairs(
        self,
        x: Tensor,
        function: PairFunction,
        padding: float = -np.inf,
        curvature: Curvature | None = None,
        of_rows: bool = False,
    ) -> tuple[Tensor, ...]:
        """Sums over pairs: one tensor [lists, rows] for each result of ``function(d, rows)``.

        ``d`` [lists, rows of the chunk, length] is x_j - x_i for rows i and columns j; padded columns have x_j =
        ``padding``. With ``of_rows``, ``x`` is a table [lists, rows], and the rows are the columns. The function must
        depend on the scores through d alone; other inputs count as constants.

        ``curvature(d, gradient, rows, upstream)`` returns the second derivatives of the pairs, where ``gradient`` is
        the derivative of the loss in d, and ``upstream`` that in the results of the function.
        """
        return _PairSums.apply(x, self, function, padding, curvature, of_rows)  # type: ignore[no-any-return]


class _PairSums(torch.autograd.Function):  # type: ignore[misc]  # torch ships no types we follow
    """The sums of `Bucket.pairs`; backward computes each chunk again unless there is only one."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bucket: Bucket,
        function: PairFunction,
        padding: float,
        curvature: Curvature | None,
        of_rows: bool,
    ) -> tuple[Tensor, ...]:
        ctx.bucket, ctx.function, ctx.curvature = bucket, function, curvature
        is_column = bucket.is_row if of_rows else bucket.is_item
        ctx.x, ctx.known = x.detach(), None
        ctx.columns = ctx.x if is_column is None else torch.where(is_column, ctx.x, padding)
        results = []
        for rows in bucket.chunks():
            d, result = _chunk(ctx, rows, ctx.needs_input_grad[0] and bucket.rows_at_once >= bucket.rows)
            if d.requires_grad:
                ctx.known = d, result
            results.append([part.detach() for part in result])
        return tuple(torch.cat(parts, 1) for parts in zip(*results, strict=True))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        bucket, total = ctx.bucket, torch.zeros_like(ctx.x)
        for rows in bucket.chunks():
            d, result = ctx.known or _chunk(ctx, rows, True)
            above = tuple(part[:, rows] for part in upstream)
            (gradient,) = torch.autograd.grad(result, d, above)
            total += gradient.sum(1)
            total[:, rows] -= gradient.sum(2)
            if bucket.hessian is not None and ctx.curvature is not None:
                with torch.no_grad():
                    curved = ctx.curvature(d, gradient, rows, above)
                bucket.hessian += curved.sum(1)
                bucket.hessian[:, rows] += curved.sum(2)
        return total, None, None, None, None, None


def _chunk(ctx: Any, rows: slice, with_graph: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    with torch.set_grad_enabled(with_graph):
        d = (ctx.columns[:, None, :] - ctx.x[:, rows, None]).requires_grad_(with_graph)
        return d, ctx.function(d, rows)


# ---- evaluation ------------------------------------------------------------------------------------------------------


def evaluate_formula(
    loss: RankingLoss, scores: Tensor, layout: Layout, with_gradient: bool, with_hessian: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The bounded losses of the queries by the formula of a loss; their gradient and hessian per item, if needed."""
    padded = _with_padding(scores.detach())
    drawn = loss._draw(scores, layout)
    draws = None if drawn is None else _with_padding(drawn)
    losses, gradients, hessians = [], [], []
    with torch.set_grad_enabled(with_gradient), _no_autocast(scores.device.type):
        for bucket in layout.buckets:
            x = padded[bucket.items].requires_grad_(with_gradient)
            bucket.hessian = torch.zeros_like(x, requires_grad=False) if with_hessian else None
            value = loss._formula(bucket, x, *(() if draws is None else (draws[bucket.items],)))
            losses.append(value.detach())
            if with_gradient:
                (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
                gradients.append(torch.zeros_like(x) if gradient is None else gradient)
            if with_hessian:
                hessians.append(bucket.hessian)
                bucket.hessian = None
    return (
        layout.join_queries(losses),
        layout.join_items(gradients) if with_gradient else None,
        layout.join_items(hessians) if with_hessian else None,
    )


def _with_padding(values: Tensor) -> Tensor:
    return torch.cat([values, values.new_zeros(1)])


def _no_autocast(device_type: str) -> Any:
    """No operation is to be computed in half precision."""
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def layout_of(plan: Plan, device: Any, dtype: Any, tables: float, by_pairs: bool = True) -> Layout:
    """The layout of a plan for a device and a type of scores; made once.

    Lists have the rows of the plan, or a single one unless ``by_pairs``; for ``tables`` see `Layout`. A layout that was
    made under another `pair_memory` is replaced.
    """
    key, memory = (device, dtype, tables), pair_memory(device)
    known: tuple[float, Layout] | None = plan.layouts.get(key)
    if known is None or known[0] != memory:
        rows = plan.rows if by_pairs else np.minimum(plan.rows, 1)
        known = plan.layouts[key] = memory, Layout(plan, device, dtype, rows, tables)
    return known[1]


def _pack(
    sizes: NDArray[np.int64], rows: NDArray[np.int64], queries: NDArray[np.int64], elements: int
) -> Iterator[NDArray[np.int64]]:
    """Queries with tables of similar shape together, at most ``elements`` pairs of them if they are more than one.

    >>> sizes, rows = np.array([10, 900, 11, 12]), np.array([3, 90, 3, 4])
    >>> [bucket.tolist() for bucket in _pack(sizes, rows, np.arange(4), 100_000)]
    [[1], [3, 2, 0]]
    """
    if len(queries) == 0:
        return
    classes = np.ceil(np.log(sizes[queries]) / np.log(1.25))
    queries = queries[np.lexsort((-sizes[queries], -rows[queries], -classes))]
    lengths, heights = sizes[queries], rows[queries]
    start = 0
    while start < len(queries):
        most = start + max(1, elements // int(lengths[start] * heights[start])) * 4  # smaller lists follow
        length = np.maximum.accumulate(lengths[start:most])
        height = np.maximum.accumulate(heights[start:most])
        table = np.arange(1, len(length) + 1) * length * height
        pairs = np.cumsum(lengths[start:most] * heights[start:most])
        fits = (table <= elements) & (table - pairs <= np.maximum(_PADDING * pairs, _FEW_PAIRS))
        fits[0] = True
        end = start + (len(fits) if fits.all() else int(np.argmin(fits)))
        yield queries[start:end]
        start = end
