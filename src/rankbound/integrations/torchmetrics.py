"""Measures as a metric of torchmetrics, which accumulates batches and processes.

The state of the metric is the scores, the labels and the queries of all items, on the device that they came on. When a
value is computed, the items of all processes are brought into one canonical order: the queries by their ids, or by
their content where they have none, and the items of a query by score and label. The value is therefore the same bit
for bit, however the queries were divided into batches and processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.arrays import check_finite, integers, numbers, offsets_of
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import Evaluation, evaluate_lists
from rankbound.evaluation.groups import read_groups
from rankbound.integrations.groups import means_by_group
from rankbound.lists import Lists, sort_within_queries
from rankbound.measures.measure import Measure, parse_measures
from rankbound.packages import check_packages, import_package
from rankbound.protocol import Protocol, as_protocol

if TYPE_CHECKING:
    import polars as pl
    import torch
    from numpy.typing import NDArray
    from torchmetrics import Metric
else:
    check_packages("this integration", "torchmetrics", "torch")
    Metric = import_package("torchmetrics").Metric
    torch = import_package("torch")

_TIES = ("average", "input")
_FORMS = "qid (or indexes), offsets or mask"


class RankingMetric(Metric):
    """The mean of one or several measures over all queries of all batches and processes.

    `update` takes flat scores and labels with ``qid`` (torchmetrics calls it ``indexes``) or ``offsets``, or padded
    ones with a ``mask``. `compute` returns a tensor for one measure, and a dict of tensors for several. The value is
    computed in 64 bits by `rankbound.evaluate` and returned in the metric's ``dtype``; scores in half precision are
    ranked as they are.

    With ``qid`` a query may be spread over batches and processes: its items are put together when the value is
    computed. Offsets and masks describe whole queries. A sampler that repeats queries to give every process the same
    number of them changes the result: the copies count as queries of their own or, with ``qid``, as further items of
    their query.

    Parameters
    ----------
    measures:
        Names such as ``"nDCG@10"`` or ``"EM(nDCG@10)"``, one or several.
    protocol:
        How the queries are evaluated, see `rankbound.Protocol`; ``ties`` and ``empty`` replace its fields.
    ties:
        ``average`` (the default) takes the mean over all orders of tied items, ``input`` keeps the order in which they
        came; a query that is spread over processes then has the items of the first process first.
    empty:
        How to count queries for which a measure is not defined: leave them out (``skip``, the default), ``zero`` or
        ``one``. If no query is left, the value is NaN.
    groups:
        The groups of the queries by their ids (numbers in the order of the queries if they have none), as in
        `rankbound.evaluate`. `compute` then returns a dict that also has the mean of every group,
        ``"nDCG@10_language=de"``, and the worst of them, ``"nDCG@10_worst_language"``; ``evaluation().by_group`` has
        their intervals.
    options:
        Options of `torchmetrics.Metric`, such as ``dist_sync_on_step`` or ``process_group``.

    >>> metric = RankingMetric("RR")
    >>> metric.update([0.1, 0.9, 0.2], [1, 0, 0], offsets=[0, 2, 3])  # the second query has nothing relevant
    >>> metric.update([[0.7, 0.3]], [[1, 1]], mask=[[True, True]])
    >>> metric.compute()
    tensor(0.7500)
    >>> metric.per_query()["RR"].to_list()
    [0.5, None, 1.0]
    """

    is_differentiable = False
    full_state_update = False

    scores: list[torch.Tensor]
    labels: list[torch.Tensor]
    sizes: list[torch.Tensor]
    qid: list[torch.Tensor]

    def __init__(
        self,
        measures: str | Measure | Iterable[str | Measure] = "nDCG@10",
        protocol: Protocol | None = None,
        *,
        ties: str | None = None,
        empty: str | None = None,
        groups: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.measures = parse_measures(measures)
        self.groups = None if groups is None else read_groups(groups)
        is_one = isinstance(measures, (str, Measure)) or not isinstance(measures, Iterable)
        self._has_one_value = is_one and groups is None
        for name, measure in self.measures.items():
            if measure.is_standardized:
                raise ArgumentError(f"measures must need no reference runs, got {name}: use rankbound.evaluate")
        fields = {name: value for name, value in (("ties", ties), ("empty", empty)) if value is not None}
        self.protocol = as_protocol(protocol, fields)
        if self.protocol.ties not in _TIES:
            raise ArgumentError(f"ties must be one of {', '.join(_TIES)}, got {self.protocol.ties!r}")
        self._evaluation: Evaluation | None = None
        for name in ("scores", "labels", "sizes", "qid"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool | None:
        """Whether higher values are better; None if the measures disagree."""
        directions = {not measure.is_lower_better for measure in self.measures.values()}
        return directions.pop() if len(directions) == 1 else None

    # ---- batches -----------------------------------------------------------------------------------------------------

    def update(
        self,
        scores: Any,
        labels: Any,
        *,
        qid: Any = None,
        indexes: Any = None,
        offsets: Any = None,
        mask: Any = None,
    ) -> None:
        """Add a batch of items.

        Parameters
        ----------
        scores, labels:
            Tensors of one shape on one device, or arrays: of any shape with ``qid``, 1-D with ``offsets``, and 2-D,
            queries x longest list, with ``mask``.
        qid, indexes:
            The query of each item, an integer; the two names mean the same.
        offsets:
            The start of each query and, at the end, the number of items.
        mask:
            True for items, False for padding; scores and labels of padding are ignored.
        """
        if qid is not None and indexes is not None:
            raise ArgumentError("qid and indexes are two names of one argument, got both")
        queries = {"qid": indexes if qid is None else qid, "offsets": offsets, "mask": mask}
        given = [name for name, value in queries.items() if value is not None]
        if len(given) != 1:
            raise ArgumentError(f"update needs exactly one of {_FORMS}, got {' and '.join(given) or 'none of them'}")
        scores = _real("scores", scores)
        labels = _same_shape("labels", labels, scores)
        if offsets is not None:
            batch = {"sizes": _sizes(offsets, scores)}
        elif mask is not None:
            kept = _mask(mask, scores)
            batch = {"sizes": kept.sum(dim=1)}
            scores, labels = scores[kept], labels[kept]
        else:
            batch = {"qid": _ids(queries["qid"], scores).reshape(-1)}
        batch |= {"scores": _finite("scores", scores.reshape(-1)), "labels": _finite("labels", labels.reshape(-1))}
        for name, state in batch.items():  # all of it is valid
            getattr(self, name).append(state)

    # ---- values ------------------------------------------------------------------------------------------------------

    def compute(self) -> Any:
        """Return the mean of the measure as a tensor or, of several measures or with groups, a dict of them.

        Without any query, which torchmetrics warns of, this is a DataError.
        """
        self._evaluation = evaluate_lists(self._lists(), self.measures, self.protocol)
        means = self._evaluation.mean() | means_by_group(self._evaluation, self.groups)
        tensors = {name: torch.tensor(mean, dtype=self.dtype, device=self.device) for name, mean in means.items()}
        return next(iter(tensors.values())) if self._has_one_value else tensors

    def evaluation(self) -> Evaluation:
        """Return the result that `compute` takes the means of, for the queries of all processes.

        Queries without an id are numbered in the order in which they came, process after process.
        """
        self.compute()
        assert self._evaluation is not None
        return self._evaluation if self.groups is None else self._evaluation.with_groups(self.groups)

    def per_query(self) -> pl.DataFrame:
        """Return a frame with the value of every measure for each query, ordered by ``qid``."""
        return self.evaluation().per_query.sort("qid")

    def interval(
        self, confidence: float = 0.95, *, method: str = "bca", resamples: int = 10_000, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Return the confidence interval of each mean, see `rankbound.evaluation.Evaluation.interval`."""
        return self.evaluation().interval(confidence, method=method, resamples=resamples, seed=seed)

    def _lists(self) -> Lists:
        scores, labels, sizes, qid = (_array(getattr(self, name)) for name in ("scores", "labels", "sizes", "qid"))
        if len(sizes) == len(qid) == 0:
            raise DataError("there are no queries to evaluate: call update before compute")
        if len(sizes) and len(qid):
            raise DataError("every update of a metric must give qid, or none of them: got some with and some without")
        if len(qid):
            order = _sorting(qid)
            qid, scores, labels = qid[order], scores[order], labels[order]
            offsets = np.concatenate(([0], np.flatnonzero(qid[1:] != qid[:-1]) + 1, [len(qid)]))
            qids = qid[offsets[:-1]]
        else:
            offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
            qids = np.arange(len(sizes))
        if self.protocol.ties == "average":
            order = _canonical_order(scores, labels, offsets)
            scores, labels = scores[order], labels[order]
        lists = Lists(labels, offsets, scores, qids=qids)
        return lists if len(qid) else _by_content(lists)

    # ---- processes, devices and types --------------------------------------------------------------------------------

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gather the items of all processes; one that has none takes part with arrays of the right types."""
        if self.distributed_available_fn():
            for name, kind in _types(self.device).items():
                if isinstance(getattr(self, name), list) and not getattr(self, name):
                    setattr(self, name, [torch.empty(0, dtype=kind, device=self.device)])
        super().sync(*args, **kwargs)

    def _apply(self, fn: Callable[..., Any], exclude_state: Any = ()) -> Any:  # noqa: ARG002
        """Move to a device or to a type of results; the items keep their types, because ids in half precision clash."""
        this = super()._apply(fn, exclude_state=tuple(self._defaults))
        for name, kind in _types(this.device).items():
            state = getattr(this, name)
            if isinstance(state, list):
                setattr(this, name, [each.to(this.device, kind) for each in state])
            else:
                setattr(this, name, state.to(this.device, kind))
        return this


# ---- tensors ---------------------------------------------------------------------------------------------------------


def _types(device: torch.device) -> dict[str, torch.dtype]:
    """Types of the states, the same in all processes: exact for scores of every precision and for labels."""
    wide = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no 64-bit numbers
    return {"scores": wide, "labels": wide, "sizes": torch.int64, "qid": torch.int64}


def _real(name: str, values: Any, device: torch.device | None = None) -> torch.Tensor:
    """Return real numbers as a tensor; arrays and lists are moved to the device, tensors must be there already."""
    if not isinstance(values, torch.Tensor):
        return torch.from_numpy(np.array(numbers(name, values, ndim=None))).to(device)
    if values.is_complex() or values.layout != torch.strided:
        raise DataError(f"{name} must be a dense tensor of real numbers, got {values.dtype} with {values.layout}")
    if device is not None and values.device != device:
        raise DataError(f"{name} must be on the device of scores, {device}, got {values.device}")
    return values.detach()


def _same_shape(name: str, values: Any, scores: torch.Tensor) -> torch.Tensor:
    tensor = _real(name, values, scores.device)
    if tensor.shape != scores.shape:
        raise DataError(f"{name} must have the shape of scores, {tuple(scores.shape)}, got {tuple(tensor.shape)}")
    return tensor


def _finite(name: str, flat: torch.Tensor) -> torch.Tensor:
    flat = flat.to(_types(flat.device)[name])
    if flat.device.type == "cpu" or not torch.isfinite(flat).all():  # a batch on another device is copied for the error
        check_finite(name, flat.numpy(force=True))
    return flat


def _sizes(offsets: Any, scores: torch.Tensor) -> torch.Tensor:
    if scores.ndim != 1:
        raise DataError(f"scores must be 1-D with offsets, got shape {tuple(scores.shape)}")
    checked = offsets_of(offsets)
    if checked[-1] != len(scores):
        raise DataError(f"offsets must end with the number of items, {len(scores)}, got {checked[-1]}")
    return torch.from_numpy(np.diff(checked)).to(scores.device)


def _mask(mask: Any, scores: torch.Tensor) -> torch.Tensor:
    if scores.ndim != 2:
        raise DataError(f"scores must be 2-D with a mask, got shape {tuple(scores.shape)}")
    tensor = _same_shape("mask", mask, scores)
    if tensor.dtype != torch.bool and not ((tensor == 0) | (tensor == 1)).all():
        raise DataError(f"mask must be true or false everywhere, got {tensor[(tensor != 0) & (tensor != 1)][0].item()}")
    return tensor.bool()


def _ids(qid: Any, scores: torch.Tensor) -> torch.Tensor:
    if not isinstance(qid, torch.Tensor):
        qid = integers("qid", qid, ndim=None)
    tensor = _same_shape("qid", qid, scores)
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        raise DataError(f"qid must be integers, got {tensor.dtype}")
    return tensor.to(torch.int64)


def _array(state: list[torch.Tensor] | torch.Tensor) -> NDArray[Any]:
    """Return the entries of a state, which is one tensor after it was gathered from all processes."""
    tensors = state if isinstance(state, list) else [state]
    arrays = [each.numpy(force=True) for each in tensors]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.zeros(0)])


# ---- order -----------------------------------------------------------------------------------------------------------

_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)  # multipliers of two well-known hashes


def _sorting(qid: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    """Return the index that sorts items by their query and keeps the order of the items of a query."""
    return slice(None) if (qid[1:] >= qid[:-1]).all() else np.argsort(qid, kind="stable")


def _canonical_order(
    scores: NDArray[np.float64], labels: NDArray[np.float64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the order of the items by descending score in each query; among equal scores, by label."""
    order = sort_within_queries(-scores, offsets, stable=False)
    ranked, relevance, query = scores[order], labels[order], np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    tied = (ranked[1:] == ranked[:-1]) & (relevance[1:] != relevance[:-1]) & (query[1:] == query[:-1])
    if tied.any():  # sorting twice is only needed here
        order = sort_within_queries(labels, offsets)
        order = order[sort_within_queries(-scores[order], offsets)]
    return order


def _by_content(lists: Lists) -> Lists:
    """Return the same queries in an order that depends on their items only, not on the order in which they came.

    They are ordered by a 64-bit hash of scores and labels. Some measures add up over all queries at once, so that the
    last digit of a query's value depends on the queries before it.
    """
    assert lists.scores is not None
    score_bits, label_bits = ((each + 0.0).view(np.uint64) for each in (lists.scores, lists.labels))
    index = np.arange(len(lists.labels)) - np.repeat(lists.offsets[:-1], lists.sizes)
    hashed = (score_bits * _ODD[0] + label_bits) * _ODD[1]
    hashed = (hashed ^ (hashed >> np.uint64(29))) * (2 * index + 1).astype(np.uint64)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(hashed, dtype=np.uint64)))
    order = np.lexsort((sums[lists.offsets[1:]] - sums[lists.offsets[:-1]], lists.sizes))
    sizes = lists.sizes[order]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    items = np.arange(len(index)) + np.repeat(lists.offsets[:-1][order] - offsets[:-1], sizes)
    return Lists(lists.labels[items], offsets, lists.scores[items], qids=lists.query_ids[order])
