"""QueryHistory: the value of a measure for every query in every round of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.integrations.measured_lists import MeanMeasure

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.measures.measure import Measure


class QueryHistory:
    """Values of a measure per round and query, for one or several data sets; recorders of boosting libraries fill it.

    >>> history = QueryHistory("RR")
    >>> for scores in ([0.1, 0.9, 0.5], [0.8, 0.9, 0.5]), ([0.9, 0.1, 0.5], [0.8, 0.9, 0.5]):
    ...     mean = history.record("valid", np.concatenate(scores), [1, 0, 0, 0, 0, 1], np.array([0, 3, 6]))
    >>> history.values().round(3).tolist()  # rounds x queries
    [[0.333, 0.333], [1.0, 0.333]]
    >>> history.to_frame().columns
    ['data', 'round', 'qid', 'value']
    """

    def __init__(self, measure: str | Measure) -> None:
        self.metric = MeanMeasure.of(measure)
        self._rounds: dict[str, list[NDArray[np.float64]]] = {}

    @property
    def measure(self) -> str:
        """The name of the measure."""
        return self.metric.name

    @property
    def data(self) -> list[str]:
        """The names of the data sets, in the order in which they were first evaluated."""
        return list(self._rounds)

    def record(self, data: str, scores: Any, labels: Any, offsets: NDArray[np.int64]) -> float:
        """Add a round of a data set and return the mean over the queries for which the measure is defined."""
        lists = self.metric.lists(labels, offsets)
        values = lists.values(scores)
        rounds = self._rounds.setdefault(data, [])
        if rounds and len(rounds[0]) != len(values):
            raise DataError(f"{data} must have the same queries in every round, {len(rounds[0])}, got {len(values)}")
        rounds.append(values)
        return lists.mean_of(values)

    def clear(self) -> None:
        """Forget all rounds."""
        self._rounds.clear()

    def values(self, data: str | None = None) -> NDArray[np.float64]:
        """Return values (rounds x queries) of a data set, of the only one for None; NaN where there is no value."""
        if data is None and len(self._rounds) == 1:
            data = self.data[0]
        if data not in self._rounds:
            raise ArgumentError(f"data must be one of the recorded data sets, {', '.join(self.data)}, got {data!r}")
        return np.stack(self._rounds[data])

    def mean(self, data: str | None = None) -> NDArray[np.float64]:
        """Return the mean over queries in each round."""
        return np.asarray(np.nanmean(self.values(data), axis=1))

    def to_frame(self) -> pl.DataFrame:
        """Return a row per data set, round (from 1) and query: data, round, qid, value (null where there is none).

        Boosting libraries keep no names of queries, so ``qid`` is the index of the query in its data set, from 0.
        """
        import polars as pl

        schema = {"data": pl.String, "round": pl.Int64, "qid": pl.Int64, "value": pl.Float64}
        frames = []
        for name in self.data:
            values = self.values(name)
            rounds, queries = values.shape
            columns = {
                "data": pl.repeat(name, values.size, dtype=pl.String, eager=True),
                "round": np.repeat(np.arange(1, rounds + 1), queries),
                "qid": np.tile(np.arange(queries), rounds),
                "value": pl.Series(values.ravel(), nan_to_null=True),
            }
            frames.append(pl.DataFrame(columns, schema=schema))
        return pl.concat(frames) if frames else pl.DataFrame(schema=schema)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {len(rounds)} x {len(rounds[0])}" for name, rounds in self._rounds.items())
        return f"QueryHistory({self.measure}; {shapes or 'no rounds'})"
