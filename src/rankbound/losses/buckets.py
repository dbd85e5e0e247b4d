"""Buckets: the lists of a plan as padded tables on a device, for the losses in torch operations.

Lists of similar length and similar numbers of rows share a bucket. A table of pairs has one entry per row and column of
each list in the bucket. A loss says how many such tables it holds at a time, at most, and the rows of a bucket are
visited in chunks so that these tables stay within `pair_memory`: many short lists make one chunk, a long list has
several. Padding is bounded too: it is at most a quarter of the pairs of a bucket, or so few pairs that another bucket
would cost more.

All of this follows from the labels. It is computed on the host once per plan and device, and then kept on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.losses.device_settings import pair_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.losses.plans import Plan

__all__ = ["Bucket", "Layout", "layout_of"]

_PADDING, _FEW_PAIRS = 0.25, 30_000  # padding of a bucket: this fraction of its pairs, or so many

Result = tuple[Any, Any, Any]  # values of queries, gradient of items or None, measures of the present rankings or None


@dataclass(eq=False)
class Layout:
    """The informative lists of a plan in buckets, and where their results go.

    Values have one entry per query, gradients one per item of the batch; both are 0 where a query is not informative.
    ``rows`` are the rows of each list in tables of pairs, and ``tables`` is the number of tables in the type of the
    scores that a loss holds at a time. ``exact`` is the type of sums over the items of a list: float64, except on
    devices that have none.
    """

    plan: Plan
    device: Any
    dtype: Any
    rows: NDArray[np.int64]
    tables: float = 1.0
    buckets: list[Bucket] = field(default_factory=list)
    tensors: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan, items = self.plan, len(self.plan.labels)
        self.exact = torch.float32 if self.device.type == "mps" else torch.float64
        size = torch.finfo(self.dtype).bits // 8
        elements = int(pair_memory(self.device) * 2**20 / (self.tables * size))
        positions, from_items, from_queries = 0, np.zeros(items, np.int64), np.zeros(len(plan.rows), np.int64)
        members: list[NDArray[np.int64]] = []
        for queries in packed(plan.sizes, self.rows, np.flatnonzero(plan.active), elements):
            length, rows = int(plan.sizes[queries].max()), int(self.rows[queries].max())
            columns = np.arange(length)
            slots = plan.offsets[:-1][queries, None] + columns
            is_item = columns < plan.sizes[queries, None]
            at = positions + np.arange(is_item.size).reshape(is_item.shape)
            own = np.where(is_item, slots, items)
            from_items[(plan.order + plan.per_item(plan.offsets[:-1]))[own[is_item]]] = at[is_item]
            from_queries[queries] = sum(map(len, members)) + np.arange(len(queries))
            positions += is_item.size
            members.append(queries)
            at_once = max(1, min(rows, elements // (len(queries) * length)))
            self.buckets.append(Bucket(self, queries, length, rows, at_once, self.on_device(own)))
        self.total = positions
        self.per_item = self.on_device(np.repeat(np.arange(len(plan.rows)), plan.sizes))
        self.active = self.on_device(plan.active)
        self._from_items = self.on_device(np.where(plan.per_item(plan.active), from_items, positions))
        self._from_queries = self.on_device(np.where(plan.active, from_queries, sum(map(len, members))))

    def on_device(self, array: NDArray[Any], exact: bool = False) -> Any:
        """A copy of an array of the plan; numbers in the type of the scores, or in the exact type."""
        tensor = torch.from_numpy(np.array(array))
        if array.dtype.kind == "f":
            tensor = tensor.to(self.exact if exact else self.dtype)
        return tensor.to(self.device)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """A tensor, or several, that is made once for this layout."""
        if name not in self.tensors:
            self.tensors[name] = make()
        return self.tensors[name]

    def with_padding(self, scores: Any) -> Any:
        """The scores and a 0 that stands for padding: what ``Bucket.items`` are positions in."""
        return torch.cat([scores, scores.new_zeros(1)])

    def run(self, function: Callable[[Bucket, Any], Result]) -> Result:
        """Values, gradient and measures of all buckets, in the order of queries and items.

        ``function`` is called with a bucket and with memory for one table of pairs, which all buckets share: fresh
        memory for each chunk would cost as much as the work in it. Results are gathered, never scattered, so that they
        do not depend on the order in which a device writes.
        """
        largest = max((bucket.rows_at_once * bucket.slots.numel() for bucket in self.buckets), default=0)
        memory = torch.empty(largest, dtype=self.dtype, device=self.device)
        results = [function(bucket, memory) for bucket in self.buckets]
        none = torch.zeros(1, dtype=self.exact, device=self.device)
        values, measured = (
            None if results and results[0][part] is None
            else torch.cat([*(result[part].to(self.exact) for result in results), none])[self._from_queries]
            for part in (0, 2)
        )  # fmt: skip
        if results and results[0][1] is None:
            return values, None, measured
        gradients = [result[1].to(self.dtype).reshape(-1) for result in results]
        return values, torch.cat([*gradients, none.to(self.dtype)])[self._from_items], measured


@dataclass(eq=False)
class Bucket:
    """Some lists of a layout, padded to ``length`` items and ``rows`` rows; items come in the order of the plan.

    ``slots`` [queries, length] are positions in the arrays of the plan, beyond their end for padding.
    """

    layout: Layout
    queries: NDArray[np.int64]
    length: int
    rows: int
    rows_at_once: int
    slots: Any
    tensors: dict[str, Any] = field(default_factory=dict)

    def of_items(self, array: NDArray[Any], name: str, padding: float = 0, exact: bool = False) -> Any:
        """An array of the plan, in its order, as a table [queries, length]."""
        if name not in self.tensors:
            padded = np.append(array, array.dtype.type(padding))
            self.tensors[name] = self.layout.kept(name, lambda: self.layout.on_device(padded, exact))[self.slots]
        return self.tensors[name]

    def of_queries(self, array: NDArray[Any], name: str, exact: bool = True) -> Any:
        """An array of the plan with one entry per query, as a column [queries, 1]."""
        if name not in self.tensors:
            array = np.broadcast_to(np.asarray(array), self.layout.plan.rows.shape)
            self.tensors[name] = self.layout.on_device(array[self.queries], exact)[:, None]
        return self.tensors[name]

    @cached_property
    def columns(self) -> Any:
        """0, 1, ..., length - 1."""
        return torch.arange(self.length, device=self.layout.device)

    @cached_property
    def sizes(self) -> Any:
        """Items of each list [queries, 1]."""
        return self.of_queries(self.layout.plan.sizes, "sizes")

    @cached_property
    def inside(self) -> Any:
        """Whether each entry is an item rather than padding."""
        return self.columns < self.sizes

    @cached_property
    def is_padded(self) -> bool:
        """Whether some list is shorter than the others."""
        return bool((self.layout.plan.sizes[self.queries] < self.length).any())

    def fill_padding(self, values: Any, filling: float) -> Any:
        """The values of items, and something else for padding."""
        return torch.where(self.inside, values, filling) if self.is_padded else values

    @cached_property
    def is_row(self) -> Any:
        """Whether each of the first ``rows`` entries is a row of its list."""
        return self.columns[: self.rows] < self.of_queries(self.layout.rows, "row counts")

    @cached_property
    def order(self) -> Any:
        """For each entry, its index among the items of its list; padding keeps its index."""
        return torch.where(self.inside, self.of_items(self.layout.plan.order, "order"), self.columns)

    @cached_property
    def items(self) -> Any:
        """For each entry, its position in the scores; that of the added 0 for padding."""
        plan = self.layout.plan
        return self.of_items(plan.order + plan.per_item(plan.offsets[:-1]), "items", len(plan.labels))

    @cached_property
    def weights(self) -> Any:
        """The weights of the plan, 0 for padding."""
        return self.of_items(self.layout.plan.weights, "weights")

    @cached_property
    def exact_weights(self) -> Any:
        """The same in the exact type."""
        return self.of_items(self.layout.plan.weights, "exact weights", exact=True)

    @cached_property
    def row_weights(self) -> Any:
        """The weights of the rows in the exact type, 0 for padding [queries, rows]."""
        return self.exact_weights[:, : self.rows] * self.is_row

    @cached_property
    def has_cuts(self) -> bool:
        """Whether some list has a cutoff."""
        return bool((self.layout.plan.cuts[self.queries] > 0).any())

    @cached_property
    def cuts(self) -> Any:
        """The cutoff of each list, 0 for none [queries, 1]."""
        return self.of_queries(self.layout.plan.cuts, "cuts")

    @cached_property
    def constants(self) -> Any:
        """The constant of each list [queries]."""
        return self.of_queries(self.layout.plan.constants, "constants")[:, 0]

    def chunks(self) -> Iterator[slice]:
        """The rows that are visited at once."""
        for start in range(0, self.rows, self.rows_at_once):
            yield slice(start, min(start + self.rows_at_once, self.rows))

    def differences(self, columns: Any, own: Any, rows: slice, memory: Any) -> Any:
        """columns_j - own_i for a chunk of rows i and all columns j, in the memory of `Layout.run`."""
        return torch.sub(columns[:, None, :], own[:, rows, None], out=self._table(rows, memory))

    def shares(self, columns: Any, own: Any, rows: slice, memory: Any) -> Any:
        """columns_j / (own_i + columns_j), likewise."""
        table = torch.add(columns[:, None, :], own[:, rows, None], out=self._table(rows, memory))
        return torch.div(columns[:, None, :], table, out=table)

    def _table(self, rows: slice, memory: Any) -> Any:
        shape = (len(self.queries), rows.stop - rows.start, self.length)
        return memory[: math.prod(shape)].view(shape)

    def zeros(self) -> Any:
        """A table [queries, length] in the type of the scores, to add to."""
        return torch.zeros(self.slots.shape, dtype=self.layout.dtype, device=self.layout.device)


def layout_of(plan: Plan, scores: Any, tables: float, by_pairs: bool = True) -> Layout:
    """The layout of a plan for scores of this type on this device; made once.

    Lists have the rows of the plan, or a single one unless ``by_pairs``; for ``tables`` see `Layout`. A layout that was
    made under another `pair_memory` is replaced.
    """
    key, memory = (scores.device, scores.dtype), pair_memory(scores.device)
    known: tuple[float, Layout] | None = plan.layouts.get(key)
    if known is None or known[0] != memory:
        rows = plan.rows if by_pairs else np.minimum(plan.rows, 1)
        known = plan.layouts[key] = memory, Layout(plan, scores.device, scores.dtype, rows, tables)
    return known[1]


def packed(
    sizes: NDArray[np.int64], rows: NDArray[np.int64], queries: NDArray[np.int64], elements: int
) -> Iterator[NDArray[np.int64]]:
    """Queries with tables of similar shape together, at most ``elements`` pairs of them if they are more than one.

    >>> sizes, rows = np.array([10, 900, 11, 12]), np.array([3, 90, 3, 4])
    >>> [bucket.tolist() for bucket in packed(sizes, rows, np.arange(4), 100_000)]
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
