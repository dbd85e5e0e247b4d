"""Some pairs of images with the order a ranker gives them (neural ranking paper, figures 2, 6, 7).

`example_pairs` chooses them where the images are, and gives a table that can be kept; `pictures_of` makes pictures of
such a table, which may come from anywhere.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.arrays import floats, integers, numbers
from rankbound.errors import DataError
from rankbound.studies.learning import shrink_image

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

KINDS = ("right order", "wrong order", "surest right", "surest wrong", "nearest to a tie")
COLUMNS: Mapping[str, Any] = MappingProxyType(
    {
        "kind": pl.String,
        "pair": pl.Int64,
        "side": pl.String,
        "label": pl.Float64,
        "score": pl.Float64,
        "height": pl.Int64,
        "width": pl.Int64,
        "pixels": pl.Binary,
    }
)
"""A row per image: left is the one that the ranker puts first; ``pixels`` are gray values, row by row."""
_SIDES = ("left", "right")
_MOST_PIXELS = 48  # along each side
_WHITE = 255


def example_pairs(
    images: ArrayLike, labels: ArrayLike, scores: ArrayLike, pairs: ArrayLike, count: int
) -> pl.DataFrame:
    """Up to ``count`` pairs of each of `KINDS`, as a table with `COLUMNS`; no image is in two of them.

    ``images`` is images x height x width of gray values from 0 to 255, ``pairs`` is pairs x 2 rows of them, in any
    order that owes nothing to the scores: those in the right and in the wrong order are the first ones found. The
    surest have the largest difference of scores.
    """
    gray = numbers("images", images, ndim=3)
    if not (gray.min(initial=0) >= 0 and gray.max(initial=0) <= _WHITE):  # NaN neither
        raise DataError(f"images must be gray values from 0 to {_WHITE}, got {gray.min()} to {gray.max()}")
    label, score = (floats(name, each, length=len(gray)) for name, each in (("labels", labels), ("scores", scores)))
    rows_of = integers("pairs", pairs, ndim=2, least=0)
    if rows_of.shape[1] != 2 or rows_of.max(initial=-1) >= len(gray):
        raise DataError(
            f"pairs must be pairs x 2 rows of {len(gray)} images, got shape {rows_of.shape} of rows up to "
            f"{rows_of.max(initial=-1)}"
        )
    first, second = rows_of.T
    ahead = (score[first] - score[second]) * np.sign(label[first] - label[second])
    candidates = {
        "right order": np.flatnonzero(ahead > 0),
        "wrong order": np.flatnonzero(ahead < 0),
        "surest right": _sort_members(-ahead, ahead > 0),
        "surest wrong": _sort_members(ahead, ahead < 0),
        "nearest to a tie": _sort_members(np.abs(ahead), np.full(len(ahead), True)),
    }
    used: set[int] = set()
    rows = []
    for kind in KINDS:
        found = 0
        for at in candidates[kind].tolist():
            if found == count:
                break
            one, other = rows_of[at].tolist()
            if used & {one, other}:
                continue
            used |= {one, other}
            found += 1
            in_order = (one, other) if score[one] >= score[other] else (other, one)
            rows += [
                (kind, found, side, label[image], score[image], *_shrink(gray[image]))
                for side, image in zip(_SIDES, in_order, strict=True)
            ]
    return pl.DataFrame(rows, schema=dict(COLUMNS), orient="row")


def _sort_members(key: NDArray[np.float64], members: NDArray[np.bool_]) -> NDArray[np.int64]:
    found = np.flatnonzero(members)
    return found[np.argsort(key[found], kind="stable")]


def _shrink(image: NDArray[Any]) -> tuple[int, int, bytes]:
    height, width = image.shape
    factor = min(1.0, _MOST_PIXELS / max(height, width))
    small = shrink_image(image, (max(1, round(height * factor)), max(1, round(width * factor))))
    return *small.shape, np.rint(small).astype(np.uint8).tobytes()


def check_examples(table: pl.DataFrame) -> None:
    """DataError unless a table has the columns and values that `example_pairs` gives."""
    columns = {name: table.schema.get(name) for name in COLUMNS}
    wrong = [name for name, kind in columns.items() if kind != COLUMNS[name]]
    if wrong:
        raise DataError(f"pairs of images need a column {wrong[0]} of {COLUMNS[wrong[0]]}, got {columns[wrong[0]]}")
    rules = {
        f"kind must be one of {', '.join(KINDS)}": pl.col("kind").is_in(KINDS),
        "side must be left or right": pl.col("side").is_in(_SIDES),
        "label and score must be finite": pl.col("label").is_finite() & pl.col("score").is_finite(),
        f"images must be of 1 to {_MOST_PIXELS} pixels a side": pl.col("height").is_between(1, _MOST_PIXELS)
        & pl.col("width").is_between(1, _MOST_PIXELS),
        "an image must have height x width pixels": pl.col("pixels").bin.size() == pl.col("height") * pl.col("width"),
    }
    for rule, holds in rules.items():
        if not table.select(holds.fill_null(False).all()).item():
            raise DataError(f"pairs of images: {rule}")


def pictures_of(examples: pl.DataFrame) -> pl.DataFrame:
    """The table with the images as pictures: kind, pair, side, label, score, image (a PNG as a data URL)."""
    check_examples(examples)
    images = [
        _png(np.frombuffer(pixels, dtype=np.uint8).reshape(height, width))
        for height, width, pixels in examples.select("height", "width", "pixels").iter_rows()
    ]
    return examples.drop("height", "width", "pixels").with_columns(pl.Series("image", images, dtype=pl.String))


def _png(gray: NDArray[np.uint8]) -> str:
    """A gray image as a PNG in a data URL: header, one deflated block of rows, end."""
    height, width = gray.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), gray])  # each row begins with its filter, 0 for none

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()
