"""QueryKFold: cross-validation folds that do not split queries, for scikit-learn's searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankbound.arrays import names_of
from rankbound.errors import ArgumentError, DataError
from rankbound.packages import needed_by

with needed_by("rankbound.models"):
    from sklearn.model_selection import BaseCrossValidator
    from sklearn.utils import indexable

if TYPE_CHECKING:
    from numpy.typing import NDArray


class QueryKFold(BaseCrossValidator):  # type: ignore[misc]  # scikit-learn ships no types we follow
    """K folds over queries: every query is in exactly one fold, and fold sizes differ by at most one query.

    Pass it to a search as ``cv``, and the query ids as ``qid`` to the `fit` of the search, with scikit-learn's metadata
    routing enabled, so that they also reach `Ranker.fit` and `Ranker.score` (see `Ranker`). Without metadata routing,
    pass them as ``groups``.

    Parameters
    ----------
    n_splits:
        Number of folds, at least 2.
    shuffle:
        Assign queries to folds at random. Otherwise folds are blocks of queries in the order of their first rows, as
        in the LETOR collections.
    random_state:
        Seed of the random assignment.

    >>> folds = QueryKFold(2, shuffle=False)
    >>> [test.tolist() for _, test in folds.split(np.zeros((5, 1)), groups=["a", "b", "a", "c", "b"])]
    [[0, 1, 2, 4], [3]]
    """

    __metadata_request__split: ClassVar[dict[str, bool]] = {"groups": True, "qid": True}  # read by scikit-learn

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: int | None = 0) -> None:
        if not isinstance(n_splits, (int, np.integer)) or n_splits < 2:
            raise ArgumentError(f"n_splits must be an integer of at least 2, got {n_splits!r}")
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def split(
        self, X: Any, y: Any = None, groups: Any = None, qid: Any = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the row indices of the training and test set of each fold; ``groups`` or ``qid`` has their queries."""
        if groups is None and qid is not None:
            groups = names_of("qid", qid)
        elif groups is not None:
            groups = names_of("groups", groups)
        try:
            X, y, groups = indexable(X, y, groups)
        except (TypeError, ValueError) as error:
            raise DataError(f"X, y and groups must have one entry per row: {error}") from error
        yield from super().split(X, y, groups)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, qid: Any = None) -> int:  # noqa: ARG002
        """Return the number of folds."""
        return int(self.n_splits)

    def _iter_test_masks(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[NDArray[np.bool_]]:  # noqa: ARG002
        if groups is None:
            raise DataError(
                "groups must be the query of each row, got None; pass groups=qid, or qid= with metadata routing"
            )
        _, first, code = np.unique(groups, return_index=True, return_inverse=True)
        queries = len(first)
        if queries < self.n_splits:
            raise DataError(f"n_splits must be at most the number of queries, {queries}, got {self.n_splits}")
        ordered = np.argsort(first)
        if self.shuffle:
            ordered = np.random.default_rng(self.random_state).permutation(ordered)
        fold_of_query = np.empty(queries, dtype=np.int64)
        for fold, chosen in enumerate(np.array_split(ordered, self.n_splits)):
            fold_of_query[chosen] = fold
        for fold in range(self.n_splits):
            yield fold_of_query[code] == fold
