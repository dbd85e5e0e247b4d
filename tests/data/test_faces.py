"""Faces from arrays, archives and folders."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rankbound.data.describe import describe
from rankbound.data.faces import Faces, read_faces
from rankbound.errors import ArgumentError, DataError, FileFormatError

image_library = pytest.importorskip("PIL.Image")


def jpeg(width: int = 30, height: int = 20, gray: int = 100) -> bytes:
    out = io.BytesIO()
    image_library.new("RGB", (width, height), (gray, gray, gray)).save(out, "JPEG")
    return out.getvalue()


def test_names_of_both_kinds_give_the_age(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "00012A34.jpg").write_bytes(jpeg())
    (tmp_path / "00003A02.jpg").write_bytes(jpeg())
    faces = read_faces(tmp_path, size=8)
    assert (faces.ids.tolist(), faces.ages.tolist()) == ([3, 12], [2, 34])
    assert faces.images.shape == (2, 8, 8)
    (tmp_path / "26_1_0_20170116.jpg.chip.jpg").write_bytes(jpeg())
    assert sorted(read_faces(tmp_path, size=8).ages.tolist()) == [2, 26, 34]


def test_archive_equals_folder_and_keeps_the_given_split(tmp_path: Path) -> None:
    folder = tmp_path / "faces"
    folder.mkdir()
    for name, gray in (("00001A10.jpg", 50), ("00002A20.jpg", 200)):
        (folder / name).write_bytes(jpeg(gray=gray))
    with tarfile.open(tmp_path / "faces.tar", "w") as tape:
        tape.add(folder, "align_interactions")
    (tmp_path / "train.txt").write_text("00002A20.jpg 1\n")
    one, other = read_faces(folder), read_faces(tmp_path / "faces.tar", train_list=tmp_path / "train.txt")
    np.testing.assert_array_equal(one.images, other.images)
    assert other.train is not None
    assert other.train.tolist() == [False, True]
    assert one.images[0].mean() < one.images[1].mean()


def test_colors_are_kept_on_request(tmp_path: Path) -> None:
    red_and_blue = np.zeros((2, 12, 12, 3), np.uint8)
    red_and_blue[0, ..., 0], red_and_blue[1, ..., 2] = 200, 90
    for number, pixels in enumerate(red_and_blue):
        image_library.fromarray(pixels).save(tmp_path / f"0000{number}A10.png")
    faces = read_faces(tmp_path, size=12, color=True)
    np.testing.assert_array_equal(faces.images, red_and_blue)
    assert repr(faces) == "Faces(images=2, size=12x12, color)"
    np.savez(tmp_path / "faces.npz", images=red_and_blue, age=np.array([10, 10]))
    np.testing.assert_array_equal(read_faces(tmp_path / "faces.npz").images, red_and_blue)
    assert describe(faces)["channels"] == 3
    assert describe(faces)["features"] == 12 * 12 * 3


def test_the_square_in_the_middle_is_taken(tmp_path: Path) -> None:
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    image_library.fromarray(wide).save(tmp_path / "00001A10.png")
    assert read_faces(tmp_path, size=10).images.min() > 200


def test_bad_faces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no JPEG or PNG"):
        read_faces(tmp_path)
    (tmp_path / "portrait.jpg").write_bytes(jpeg())
    with pytest.raises(FileFormatError, match=r"the name of an image must contain the age.*got 'portrait\.jpg'"):
        read_faces(tmp_path)
    (tmp_path / "portrait.jpg").rename(tmp_path / "00001A10.jpg")
    (tmp_path / "00001A10.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"00001A10\.jpg is not an image that can be read"):
        read_faces(tmp_path)
    with pytest.raises(ArgumentError, match="size must be a positive integer, got 0"):
        read_faces(tmp_path, size=0)
    (tmp_path / "x.tar").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"x\.tar: cannot be read"):
        read_faces(tmp_path / "x.tar")


def test_bad_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "faces.npz"
    path.write_bytes(b"PK no zip")
    with pytest.raises(DataError, match=r"faces\.npz: cannot be read"):
        read_faces(path)
    np.savez(path, images=np.zeros((2, 4, 4), np.uint8))
    with pytest.raises(DataError, match="expected the arrays images and age, got images"):
        read_faces(path)
    np.savez(path, images=np.zeros((2, 4), np.uint8), age=np.zeros(2))
    with pytest.raises(DataError, match=r"images must be a uint8 array of count x height x width, .*got uint8"):
        read_faces(path)
    np.savez(path, images=np.zeros((2, 4, 4), np.uint8), age=np.zeros(2), train_split=np.array(["yes", "no"]))
    with pytest.raises(DataError, match="train_split numeric"):
        read_faces(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images", b"no array")
    with pytest.raises(DataError, match=r"faces\.npz: expected arrays only, got 'images', which is not one"):
        read_faces(path)
    with pytest.raises(DataError, match="ages must have one entry per image, 2, got 1"):
        Faces(np.zeros((2, 4, 4), np.uint8), np.zeros(1, np.int16), np.arange(2))


@pytest.mark.real_data
def test_arrays_of_all_age_faces_are_the_middle_squares_of_its_jpegs(data_dir: Path) -> None:
    folder = data_dir / "all-age-faces"
    arrays = read_faces(folder / "aaf_gray48.npz")
    pictures = read_faces(folder / "aligned_every10.tar", train_list=folder / "train.txt.gz")
    assert (len(arrays), len(pictures)) == (13_322, 1_333)
    at = np.searchsorted(arrays.ids, pictures.ids)
    np.testing.assert_array_equal(arrays.ages[at], pictures.ages)
    np.testing.assert_array_equal(arrays.train[at], pictures.train)
    differences = np.abs(arrays.images[at].astype(int) - pictures.images)
    assert differences.mean() < 1  # JPEG decoders differ by a gray level here and there
