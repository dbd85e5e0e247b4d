"""Pairs of images with a ranker's order: which are kept, as what, and what is refused on reading."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import polars as pl
import pytest

from rankbound.errors import DataError
from rankbound.studies.image_pairs import COLUMNS, KINDS, check_examples, example_pairs, pictures_of


def flat(*grays, size=(2, 3)):
    return np.stack([np.full(size, gray, np.uint8) for gray in grays])


# Images 0 to 9 have the gray value 10 x their number, so that a row of the table tells which image it is.
IMAGES = flat(*range(0, 100, 10))
LABELS = [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]
PAIRS = np.array([[0, 1], [3, 2], [4, 5], [6, 7], [9, 8]])
SCORES = [0.0, 0.5, 0.9, 0.1, 0.0, 3.0, 9.0, 0.0, 0.50, 0.51]  # right, wrong, right (surest), wrong (surest), near tie


def numbers(table):
    return [(kind, side, pixels[0] // 10) for kind, side, pixels in table.select("kind", "side", "pixels").iter_rows()]


def test_one_pair_of_each_kind_the_first_of_which_is_ahead():
    assert numbers(example_pairs(IMAGES, LABELS, SCORES, PAIRS, 1)) == [
        ("right order", "left", 1), ("right order", "right", 0),
        ("wrong order", "left", 2), ("wrong order", "right", 3),
        ("surest right", "left", 5), ("surest right", "right", 4),
        ("surest wrong", "left", 6), ("surest wrong", "right", 7),
        ("nearest to a tie", "left", 9), ("nearest to a tie", "right", 8),
    ]  # fmt: skip


def test_labels_and_scores_belong_to_their_images():
    found = example_pairs(IMAGES, LABELS, SCORES, PAIRS, 1)
    for label, score, pixels in found.select("label", "score", "pixels").iter_rows():
        assert (label, score) == (LABELS[pixels[0] // 10], SCORES[pixels[0] // 10])


def test_no_image_is_shown_twice_and_pairs_are_numbered_within_their_kind():
    random = np.random.default_rng(0)
    pairs = np.array([random.choice(60, 2, replace=False) for _ in range(500)])
    labels, scores = random.permutation(60), random.permutation(60) / 60
    images = np.repeat(np.arange(60, dtype=np.uint8), 4).reshape(60, 2, 2)
    found = example_pairs(images, labels, scores, pairs, 3)
    shown = [pixels[0] for pixels in found["pixels"]]
    assert len(shown) == len(set(shown)) == 2 * 3 * len(KINDS)
    assert found["pair"].to_list() == [1, 1, 2, 2, 3, 3] * len(KINDS)
    left, right = found.filter(pl.col("side") == "left"), found.filter(pl.col("side") == "right")
    assert (left["score"] > right["score"]).all()
    right_order = (left["label"] > right["label"]).to_list()
    assert right_order[:12] == [True] * 3 + [False] * 3 + [True] * 3 + [False] * 3


def test_equal_scores_are_neither_right_nor_wrong():
    found = example_pairs(IMAGES, LABELS, np.zeros(10), PAIRS, 2)
    assert found["kind"].to_list() == ["nearest to a tie"] * 4


def test_large_images_are_shrunk_to_means_and_keep_their_shape():
    image = np.zeros((2, 96, 48), np.uint8)
    image[:, :, ::2] = 101  # means over 2 x 2 pixels: 50.5, which rounds to the even 50
    found = example_pairs(image, [1, 2], [0.0, 1.0], np.array([[0, 1]]), 1)
    assert set(found.select("height", "width").rows()) == {(48, 24)}
    assert set(found["pixels"][0]) == {50}


def test_pictures_are_the_images():
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (2, 6, 4)).astype(np.uint8)
    found = pictures_of(example_pairs(images, [1, 2], [0.0, 1.0], np.array([[0, 1]]), 1))
    assert found.columns == ["kind", "pair", "side", "label", "score", "image"]
    decoded = [np.asarray(Image.open(BytesIO(base64.b64decode(url.split(",")[1])))) for url in found["image"].to_list()]
    np.testing.assert_array_equal(decoded, images[::-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.lit("<b>").alias("kind"), "kind must be one of right order"),
        (pl.lit(None, dtype=pl.String).alias("kind"), "kind must be one of right order"),
        (pl.lit("top").alias("side"), "side must be left or right"),
        (pl.lit(float("nan")).alias("score"), "label and score must be finite"),
        (pl.lit(49).alias("height").cast(pl.Int64), "images must be of 1 to 48 pixels a side"),
        (pl.lit(0).alias("width").cast(pl.Int64), "images must be of 1 to 48 pixels a side"),
        (pl.lit(b"xy").alias("pixels"), "an image must have height x width pixels"),
        (pl.lit("text").alias("pixels"), "a column pixels of Binary, got String"),
        (pl.lit("1").alias("label"), "a column label of Float64, got String"),
    ],
)
def test_what_is_no_pair_of_images_is_refused(change, message):
    found = example_pairs(IMAGES, LABELS, SCORES, PAIRS, 1)
    check_examples(found)
    with pytest.raises(DataError, match=message):
        pictures_of(found.with_columns(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": IMAGES[0]}, "images must be 3-D"),
        ({"images": IMAGES * np.nan}, "images must be gray values from 0 to 255, got nan"),
        ({"images": IMAGES.astype(int) * 9}, "images must be gray values from 0 to 255, got 0 to 810"),
        ({"labels": LABELS[:9]}, "labels must have 10 entries, got 9"),
        ({"scores": [*SCORES[:9], np.nan]}, "scores must be finite"),
        ({"pairs": PAIRS[:, :1]}, r"got shape \(5, 1\)"),
        ({"pairs": PAIRS + 5}, "rows up to 14"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    given = {"images": IMAGES, "labels": LABELS, "scores": SCORES, "pairs": PAIRS} | change
    with pytest.raises(DataError, match=message):
        example_pairs(**given, count=1)


def test_a_missing_column_is_named():
    with pytest.raises(DataError, match="a column kind of String, got None"):
        check_examples(pl.DataFrame())
    check_examples(pl.DataFrame(schema=dict(COLUMNS)))
