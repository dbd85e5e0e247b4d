"""How training went and what was learned: quantities over epochs, coefficients as images, pairs of images."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["coefficient_images", "coefficients_of_history", "image_pairs", "training_paths"]

COEFFICIENT = "coefficient "  # quantities of a history that hold a learned image: "coefficient ROW,COLUMN"


def training_paths(
    history: pl.DataFrame, quantities: Sequence[str] | None = None, *, limit: int | None = None
) -> pl.DataFrame:
    """Quantities over epochs, folds and seeds taken together.

    Columns: data, variant, system, quantity, epoch, mean, low, high; ``low`` and ``high`` are the least and the
    greatest of folds and seeds. With a ``limit`` on rows, epochs are left out evenly; the first and the last of each
    path stay. Approximation error along training (direct optimisation paper, figures 1 to 3) is one of the quantities,
    loss and measures (neural ranking paper, figures 1, 4, 5) are others.
    """
    needed = ("data", "variant", "system", "epoch", "quantity", "value")
    missing = [name for name in needed if name not in history.columns]
    if missing:
        raise DataError(f"a history needs the columns {', '.join(needed)}; missing: {', '.join(missing)}")
    rows = history.filter(pl.col("value").is_finite())
    if quantities is not None:
        rows = rows.filter(pl.col("quantity").is_in(list(quantities)))
    if rows.is_empty():
        names = history["quantity"].unique(maintain_order=True).to_list()
        known = ", ".join(name for name in names if not name.startswith(COEFFICIENT))  # of which there are thousands
        raise DataError(f"the history has no {' or '.join(quantities or ['values'])}; it has {known or 'no rows'}")
    path = ["data", "variant", "system", "quantity"]
    means = (
        rows.group_by(*path, "epoch", maintain_order=True)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.col("value").min().alias("low"),
            pl.col("value").max().alias("high"),
        )
        .sort("epoch", maintain_order=True)
    )
    if limit is None or len(means) <= limit:
        return means
    paths = means.select(path).n_unique()
    keep = max(2, limit // paths)
    last = pl.len().over(*path) - 1
    rank = pl.int_range(pl.len()).over(*path)
    slot = (rank * (keep - 1)) // pl.max_horizontal(last, 1)
    return (
        means.with_columns(slot.alias("_slot"))
        .filter((pl.col("_slot") != pl.col("_slot").shift(1).over(*path)).fill_null(True))
        .drop("_slot")
    )


def coefficient_images(
    coefficients: Mapping[str, ArrayLike], shape: tuple[int, int], *, limit: int = 5000
) -> pl.DataFrame:
    """Learned coefficients of linear models laid out as the image they weigh (neural ranking paper, figure 3).

    Columns: model, row, column, weight; weights are over the largest magnitude of their model. Images are shrunk (each
    pixel the mean over its area) until all of them together have at most ``limit`` pixels.
    """
    if not coefficients:
        raise DataError("coefficient images need at least one model")
    height, width = shape
    factor = min(1.0, float(np.sqrt(limit / len(coefficients) / (height * width))))
    tall, wide = max(1, int(height * factor)), max(1, int(width * factor))
    parts = []
    for model, values in coefficients.items():
        image = np.asarray(values, dtype=np.float64)
        if image.size != height * width:
            raise DataError(
                f"{model} has {image.size} coefficients, an image of {height} x {width} has {height * width}"
            )
        small = _shrink(height, tall) @ image.reshape(shape) @ _shrink(width, wide).T
        largest = np.abs(small).max()
        row, column = np.indices(small.shape)
        pixels = {"row": row.ravel(), "column": column.ravel(), "weight": (small / (largest or 1.0)).ravel()}
        parts.append(pl.DataFrame(pixels).select(pl.lit(model).alias("model"), pl.all()))
    return pl.concat(parts)


def _shrink(size: int, target: int) -> NDArray[np.float64]:
    """Target x size: the share of each old pixel in the mean of each new one."""
    edges = np.linspace(0, size, target + 1)
    low, high = edges[:-1, None], edges[1:, None]
    pixel = np.arange(size)
    overlap = np.clip(np.minimum(high, pixel + 1) - np.maximum(low, pixel), 0, None)
    return np.asarray(overlap / overlap.sum(axis=1, keepdims=True))


def coefficients_of_history(history: pl.DataFrame) -> tuple[dict[str, NDArray[np.float64]], tuple[int, int]]:
    """Learned images by system from quantities "coefficient ROW,COLUMN" of the last epoch, folds and seeds averaged."""
    rows = history.filter(pl.col("quantity").str.starts_with(COEFFICIENT))
    if rows.is_empty():
        raise DataError(f"the history has no quantity {COEFFICIENT + 'ROW,COLUMN'!r}, which holds a learned image")
    where = rows["quantity"].str.strip_prefix(COEFFICIENT).str.split_exact(",", 1).struct.unnest()
    row, column = (where[name].cast(pl.Int64, strict=False) for name in where.columns)
    if row.null_count() or column.null_count():
        raise DataError(
            f"a learned image's quantity must be {COEFFICIENT + 'ROW,COLUMN'!r}, got {rows['quantity'][0]!r}"
        )
    rows = rows.with_columns(row.alias("row"), column.alias("column"))
    rows = rows.filter(pl.col("epoch") == pl.col("epoch").max().over("system", "fold", "seed"))
    means = rows.group_by("system", "row", "column", maintain_order=True).agg(pl.col("value").mean())
    shape = (int(row.max()) + 1, int(column.max()) + 1)  # type: ignore[arg-type]
    images = {}
    for (system,), pixels in means.group_by("system", maintain_order=True):
        image = np.zeros(shape)
        image[pixels["row"].to_numpy(), pixels["column"].to_numpy()] = pixels["value"].to_numpy()
        images[str(system)] = image
    return images, shape


def image_pairs(
    images: ArrayLike, labels: ArrayLike, scores: ArrayLike, *, count: int = 6, seed: int = 0
) -> pl.DataFrame:
    """Some pairs that a ranker puts in the right order and some that it does not (neural ranking paper, figures 6, 7).

    ``images`` is pairs x 2 x height x width of grey values from 0 to 255, ``labels`` and ``scores`` are pairs x 2. Up
    to ``count`` pairs of either outcome are drawn. Columns: outcome, pair, side, label, score, image (a PNG as a data
    URL).
    """
    images, labels, scores = (np.asarray(each) for each in (images, labels, scores))
    if images.ndim != 4 or images.shape[1] != 2 or labels.shape != images.shape[:2] or scores.shape != images.shape[:2]:
        raise DataError(
            "image pairs are pairs x 2 x height x width with labels and scores pairs x 2, got shapes "
            f"{images.shape}, {labels.shape}, {scores.shape}"
        )
    right = (scores[:, 0] - scores[:, 1]) * (labels[:, 0] - labels[:, 1]) > 0
    random = np.random.default_rng(seed)
    rows = []
    for outcome, members in (("in the right order", right), ("in the wrong order", ~right)):
        found = np.flatnonzero(members)
        for number, pair in enumerate(random.permutation(found)[:count], start=1):
            rows += [
                {
                    "outcome": outcome,
                    "pair": number,
                    "side": ("left", "right")[side],
                    "label": float(labels[pair, side]),
                    "score": float(scores[pair, side]),
                    "image": _png(images[pair, side]),
                }
                for side in (0, 1)
            ]
    if not rows:
        raise DataError("there are no pairs of images")
    return pl.DataFrame(rows)


def _png(grey: NDArray[np.generic]) -> str:
    """A grey image as a PNG in a data URL: header, one deflated block of rows, end."""
    pixels = np.clip(grey, 0, 255).astype(np.uint8)
    height, width = pixels.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), pixels])  # each row begins with its filter, 0 for none

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()
