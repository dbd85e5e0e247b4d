"""Tables around the training of matrix factorization: features of users and items, merged tables, digests."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import scipy.sparse

from rankbound.data.frames import as_polars
from rankbound.data.interaction_sources import find_codes, recode_interactions
from rankbound.data.interactions import Interactions
from rankbound.data.sampling import align_interactions
from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rankbound.models.recommenders.factorization.representation import Sides


def feature_matrix(side: str, features: Any, names: NDArray[Any]) -> Any:
    """Return the features of users or items as a matrix with a row per name; 0 for names without features.

    >>> feature_matrix("item", {"item": ["b"], "long": [1.5]}, np.array(["a", "b"])).toarray().tolist()
    [[0.0], [1.5]]
    """
    if features is None:
        return None
    frame = _feature_frame(side, features)
    rows = find_codes(names, frame[side])
    columns = [column for column in frame.columns if column != side]
    values = np.zeros((len(names), len(columns)), np.float32)
    values[rows[rows >= 0]] = frame.select(columns).to_numpy()[rows >= 0]
    return scipy.sparse.csr_matrix(values)


def extended_table(table: Interactions, user_features: Any, item_features: Any) -> Interactions:
    """Return the interactions with codes for the users and items that have features only, too."""
    names = []
    for side, features, known in (
        ("user", user_features, table.user_names),
        ("item", item_features, table.item_names),
    ):
        ids = known
        if features is not None:
            new = _feature_frame(side, features)[side]
            new = new.filter(pl.Series(find_codes(known, new) < 0))
            if len(new) and new.dtype.is_integer() != (known.dtype.kind in "iu"):
                raise DataError(
                    f"{side}_features must have ids of the type of the interactions, got {new.dtype} for {known.dtype}"
                )
            ids = np.sort(np.concatenate((known, new.to_numpy().astype(known.dtype.kind)))) if len(new) else known
        names.append(ids)
    return recode_interactions(table, *names)


def _feature_frame(side: str, features: Any) -> pl.DataFrame:
    name = f"{side}_features"
    try:
        frame = as_polars(features) if not isinstance(features, dict) else pl.DataFrame(features)
    except (TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{name} must be a frame with a column {side!r}, got {type(features).__name__}") from error
    if side not in frame.columns or frame.width < 2:
        raise DataError(f"{name} must have a column {side!r} and columns of numbers, got {', '.join(frame.columns)}")
    for column in frame.columns:
        values = frame[column]
        if column == side:
            if values.null_count() or values.n_unique() < len(values):
                raise DataError(f"{name} must have distinct ids in the column {side!r}")
        elif not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
            raise DataError(f"{name} must consist of numbers, got {values.dtype} in the column {column!r}")
        elif values.null_count() or not values.cast(pl.Float64).is_finite().all():
            raise DataError(f"{name} must be finite, got null, NaN or infinity in the column {column!r}")
    return frame.with_columns(pl.exclude(side).cast(pl.Float32))


def merged_tables(
    seen: Interactions, new: Interactions, weights: NDArray[Any] | None
) -> tuple[Interactions, NDArray[np.float32] | None, NDArray[np.int32]]:
    """Return the interactions of both tables, their weights, and the codes of the users of the new ones.

    Of a pair that is in both tables, the new weight is kept; old interactions have weight 1.
    """
    if (seen.user_names.dtype.kind, seen.item_names.dtype.kind) != (
        new.user_names.dtype.kind,
        new.item_names.dtype.kind,
    ):
        raise DataError("interactions must have ids of the type of the previous ones: all texts or all integers")
    old, added = align_interactions(seen, new)
    catalog = len(old.item_names)
    keys = np.concatenate([table.users.astype(np.int64) * catalog + table.items for table in (added, old)])
    distinct, first = np.unique(keys, return_index=True)  # the new interactions come first
    users, items = np.divmod(distinct, catalog)
    merged = Interactions(users.astype(np.int32), items.astype(np.int32), old.user_names, old.item_names)
    of_rows = None
    if weights is not None:
        of_rows = np.concatenate((weights, np.ones(len(old)))).astype(np.float32)[first]
    return merged, of_rows, np.unique(added.users)


def table_digests(
    train: Interactions, held_out: Interactions | None, weights: NDArray[Any] | None, features: Sides
) -> dict[str, str | None]:
    """Return digests of the data, by which a checkpoint identifies them."""
    parts: dict[str, list[Any]] = {
        "data": [train.users, train.items],
        "eval_set": [] if held_out is None else [held_out.users, held_out.items],
        "sample_weight": [] if weights is None else [weights],
    }
    for side, matrix in zip(("user", "item"), features, strict=True):
        parts[f"{side}_features"] = [] if matrix is None else [matrix.toarray()]
    digests: dict[str, str | None] = {}
    for name, arrays in parts.items():
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        digests[name] = digest.hexdigest() if arrays else None
    return digests
