"""How training went and what was learned: quantities over epochs, coefficients as images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rankbound.arrays import floats
from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation.score_tables import check_frame

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rankbound.data.letor import LetorData
    from rankbound.studies.trial import Fitted

ERROR = "approximation error"  # quantities of a history: "train approximation error"
_STEPS = 20  # number of epochs at which it is measured
COEFFICIENT = "coefficient "  # quantities of a history that hold a learned image: "coefficient ROW,COLUMN"


def training_paths(
    history: pl.DataFrame, quantities: Sequence[str] | None = None, *, limit: int | None = None
) -> pl.DataFrame:
    """Quantities over epochs, folds and seeds taken together.

    Columns: data, variant, system, quantity, epoch, mean, low, high; ``low`` and ``high`` are the least and the
    greatest of folds and seeds. With a ``limit`` on rows, epochs are left out evenly; the first and the last of each
    path stay. Approximation error along training (direct optimization paper, figures 1 to 3) is one of the quantities,
    loss and measures (neural ranking paper, figures 1, 4, 5) are others.
    """
    check_frame("a history", history)
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
        image = floats(f"coefficients of {model}", values, ndim=None)
        if image.size != height * width:
            raise DataError(
                f"{model} has {image.size} coefficients, an image of {height} x {width} has {height * width}"
            )
        small = shrink_image(image.reshape(shape), (tall, wide))
        largest = np.abs(small).max()
        row, column = np.indices(small.shape)
        pixels = {"row": row.ravel(), "column": column.ravel(), "weight": (small / (largest or 1.0)).ravel()}
        parts.append(pl.DataFrame(pixels).select(pl.lit(model).alias("model"), pl.all()))
    return pl.concat(parts)


def shrink_image(image: NDArray[Any], shape: tuple[int, int]) -> NDArray[np.float64]:
    """The image with fewer pixels, each the mean over its area."""
    (height, width), (tall, wide) = image.shape, shape
    return np.asarray(_shares(height, tall) @ image @ _shares(width, wide).T)


def _shares(size: int, target: int) -> NDArray[np.float64]:
    """Target x size: the weight of each old pixel in the mean of each new one."""
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


def coefficients(fitted: Fitted) -> Iterator[tuple[int, str, float]]:
    """The weights of a linear model of square images after training, as "coefficient ROW,COLUMN".

    The weights of the three colors of a pixel are added: this is its weight if only the brightness changes.
    """
    weights = getattr(fitted.model, "coef_", None)
    if weights is None:
        raise ArgumentError(f"{type(fitted.model).__name__} has no coefficients to record; only linear models have")
    weights = np.ravel(weights)
    side, color_side = isqrt(len(weights)), isqrt(len(weights) // 3)
    if 3 * color_side * color_side == len(weights):  # never a square at the same time
        side, weights = color_side, weights.reshape(-1, 3).sum(axis=1)
    elif side * side != len(weights):
        raise ArgumentError(f"coefficients are recorded for square images only, got {len(weights)} coefficients")
    epoch = int(getattr(fitted.model, "kept_epoch_", 0))
    for index, weight in enumerate(weights.tolist()):
        yield epoch, f"{COEFFICIENT}{index // side},{index % side}", weight


def approximation_error(fitted: Fitted) -> Iterator[tuple[int, str, float]]:
    """Mean over queries of abs(smooth measure - measure), on training and test queries, at about 20 epochs.

    The model is trained again and stopped every few epochs; each time it resumes from its checkpoint.
    """
    from rankbound.models.by_name import make_loss

    spec = fitted.spec
    if spec.loss is None:
        raise ArgumentError(f"the approximation error is that of a smooth loss; {spec.model} has none here")
    loss = make_loss(spec.loss, "none", spec.loss_options)
    epochs = int(fitted.model.epochs)
    stops = sorted({max(1, round(epochs * step / _STEPS)) for step in range(1, _STEPS + 1)})
    train = fitted.parts["train"]
    with tempfile.TemporaryDirectory(prefix="rankbound-") as folder:
        for epoch in stops:
            model = fitted.make(epochs=epoch, selection="last", patience=None, checkpoint=folder)
            model.fit(train.features, train.lists.labels, qid=train.lists.query_of_item)
            for name in ("train", "test"):
                data: LetorData = fitted.parts[name]
                scores = model.predict(data.features, qid=data.lists.query_of_item)
                yield epoch, f"{name} {ERROR}", _mean_error(loss, data, scores)


def _mean_error(loss: Any, data: LetorData, scores: Any) -> float:
    from rankbound.evaluation import evaluate_lists

    plan = loss.plan(data.lists.labels, data.lists.offsets)
    smooth = -loss.value_and_gradient(np.asarray(scores, dtype=np.float64), plan).values
    target = str(loss.target)
    true = evaluate_lists(data.lists.with_scores(scores), [target]).values[target]
    return float(np.abs(smooth - true)[plan.active].mean())
