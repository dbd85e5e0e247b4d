"""Values of measures that are sums over relevant items, by counting the items above each of them instead of sorting.

See ``kernels/values.cpp``. Without compiled kernels, and for other measures, the items are sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.kernels import ARRAY, INTEGER, Arguments, kernel, run
from rankbound.measures.additive import Additive, Binary
from rankbound.measures.cascade import FirstHit
from rankbound.measures.label_counts import ratio
from rankbound.measures.precision_sum import PrecisionSum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.lists import Lists
    from rankbound.measures import LabelCounts, Measure

_ADDITIVE, _PRECISIONS, _FIRST_HIT = range(3)
_SMALL_CUTOFF = 100  # up to which items are dropped before the others are counted
_MOST_PAIRS = 400  # pairs of a relevant and any item, per item, from which on sorting is faster


class _RankSums(Arguments):
    _fields_ = (
        *((name, INTEGER) for name in ("form", "k", "longest")),
        *((name, ARRAY) for name in ("offsets", "cut", "gains", "table", "scores", "sums")),
    )


class RankSums:
    """A measure on queries whose items are scored many times; all items are ranked, and labels are not negative."""

    def __init__(self, measure: Measure, lists: Lists, counts: LabelCounts, form: int) -> None:
        definition: Any = measure.definition
        is_binary = form != _ADDITIVE or definition.is_binary(measure)
        labels = lists.labels
        gains = labels >= measure.rel if is_binary else np.where(labels > 0, definition.gains(measure, labels), 0.0)
        self._gains, self._offsets = gains.astype(np.float64), np.ascontiguousarray(lists.offsets, np.int64)
        cut = definition.cut(measure, counts) if form == _ADDITIVE else counts.cut(measure.cutoff)
        longest, table = int(lists.sizes.max(initial=0)), np.ones(1)
        self._k = measure.cutoff if measure.cutoff is not None and measure.cutoff <= _SMALL_CUTOFF else 0
        self._divisor = None
        if form == _PRECISIONS:
            self._divisor = definition.divisor(measure, counts)
        else:
            table = definition.discount.table(max(longest, 1), definition.discount_parameter(measure))
        if form == _ADDITIVE:
            self._divisor = definition.normalizer(measure, counts)
        self._fields: dict[str, Any] = {  # of the struct, which cannot be pickled
            "form": form,
            "k": self._k,
            "longest": longest,
            "offsets": self._offsets,
            "gains": self._gains,
            "cut": np.minimum(cut, lists.sizes).astype(np.int64),
            "table": np.ascontiguousarray(table, np.float64),
        }

    @classmethod
    def of(cls, measure: Measure, lists: Lists, counts: LabelCounts) -> RankSums | None:
        """Make it for a measure without bounding; None if the measure is no such sum, or if a sort is faster."""
        form = _form_of(measure)
        if form is None or kernel("rank_sums", _RankSums) is None:
            return None
        sums = cls(measure, lists, counts, form)
        if sums._k == 0 and form != _FIRST_HIT:
            relevant = np.add.reduceat(np.append(sums._gains != 0, False), lists.offsets[:-1], dtype=np.int64)
            if (np.where(lists.sizes > 0, relevant, 0) * lists.sizes).sum() > _MOST_PAIRS * len(lists.labels):
                return None
        return sums

    def values(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of each query; orders of ties are averaged."""
        queries = len(self._offsets) - 1
        sums = np.empty(queries)
        arguments = _RankSums(scores=np.ascontiguousarray(scores, np.float64), sums=sums, **self._fields)
        run(kernel("rank_sums", _RankSums), arguments, queries, 4 * len(scores))
        return sums if self._divisor is None else ratio(sums, self._divisor)


def _form_of(measure: Measure) -> int | None:
    definition = measure.definition
    if isinstance(definition, Additive) and type(definition).values in (Additive.values, Binary.values):
        return None if definition.depends_on_returned else _ADDITIVE
    if isinstance(definition, FirstHit) and type(definition).values is FirstHit.values:
        return _FIRST_HIT
    if isinstance(definition, PrecisionSum) and dict(measure.settings).get("div") != "retrieved":
        return _PRECISIONS
    return None
