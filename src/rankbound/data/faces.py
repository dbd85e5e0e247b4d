"""Read images of faces with ages: All-Age-Faces, and folders or archives of JPEGs whose names contain the age."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankbound.data.interactions import Names
from rankbound.data.text_chunks import StrPath
from rankbound.errors import ArgumentError, DataError, FileFormatError
from rankbound.io import read_arrays, read_bytes
from rankbound.packages import needed_by

_AAF = re.compile(r"(?P<id>\d{5,18})A(?P<age>\d{2,3})$")  # 00010A02: person, age
_UTK = re.compile(r"(?P<age>\d{1,3})_\d_.*$")  # 26_1_0_20170116...: age, gender, race, date
_IMAGES = (".jpg", ".jpeg", ".png")
_LARGEST = 64 << 20  # bytes of a file, pixels of an image


@dataclass(frozen=True, eq=False)
class Faces:
    """Images, the age of each person, and an id of each image.

    The images are uint8: count x height x width (gray), or count x height x width x 3 (red, green, blue).

    ``train`` is the data set's own split, if it has one.
    """

    images: NDArray[np.uint8]
    ages: NDArray[np.int16]
    ids: Names
    train: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        for name in ("ages", "ids", "train"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.images):
                raise DataError(f"{name} must have one entry per image, {len(self.images)}, got {len(column)}")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        color = ", color" if self.images.ndim == 4 else ""
        return f"Faces(images={len(self)}, size={self.images.shape[1]}x{self.images.shape[2]}{color})"


def read_faces(path: StrPath, size: int = 48, train_list: StrPath | None = None, color: bool = False) -> Faces:
    """Read an npz file of arrays, or JPEGs in a folder or tar archive.

    JPEGs are named as in All-Age-Faces (00010A02.jpg: person 10, 2 years old) or in UTKFace (26_1_0_2017.jpg: 26 years
    old). Their central square is scaled to ``size`` x ``size`` pixels, gray unless ``color``; the images of an npz file
    stay as they are. ``train_list`` is a text file whose lines begin with the names of the images for training.
    """
    if size < 1:
        raise ArgumentError(f"size must be a positive integer, got {size}")
    if Path(path).suffix == ".npz":
        return _read_npz(path)
    named = sorted(_images(path), key=lambda pair: pair[0])
    if not named:
        raise DataError(f"{path}: contains no JPEG or PNG")
    parsed = [_parse_name(path, name) for name, _ in named]
    pixels = np.stack([_pixels(path, name, content, size, color) for name, content in named])
    are_numbers = all(isinstance(person, int) for person, _ in parsed)
    ids = np.array([person for person, _ in parsed], dtype=np.int64 if are_numbers else np.str_)
    train = None
    if train_list is not None:
        chosen = {
            line.split()[0].decode("utf-8", "replace") for line in read_bytes(train_list).splitlines() if line.strip()
        }
        train = np.array([name in chosen for name, _ in named])
    return Faces(pixels, np.array([age for _, age in parsed], np.int16), ids, train)


def _read_npz(path: StrPath) -> Faces:
    arrays = read_arrays(path)
    if not {"images", "age"} <= arrays.keys():
        raise DataError(f"{path}: expected the arrays images and age, got {', '.join(arrays)}")
    images, ages = arrays["images"], arrays["age"]
    if images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)) or images.dtype != np.uint8:
        rule = "images must be a uint8 array of count x height x width, or of count x height x width x 3"
        raise DataError(f"{path}: {rule}, got {images.dtype} {images.shape}")
    if ages.ndim != 1 or ages.dtype.kind not in "iuf" or not ((ages >= 0) & (ages < 1000)).all():
        raise DataError(f"{path}: age must be 1-D with numbers from 0 to 999, got {ages.dtype} {ages.shape}")
    ids, train = arrays.get("person_id", np.arange(len(images))), arrays.get("train_split")
    if ids.ndim != 1 or (train is not None and (train.ndim != 1 or train.dtype.kind not in "biuf")):
        raise DataError(f"{path}: person_id and train_split must be one-dimensional, and train_split numeric")
    return Faces(images, ages.astype(np.int16), ids, None if train is None else train.astype(bool))


def _images(path: StrPath) -> Iterator[tuple[str, bytes]]:
    folder = Path(path)
    if folder.is_dir():
        for file in sorted(folder.rglob("*")):
            if file.suffix.lower() in _IMAGES and file.is_file():
                yield file.name, read_bytes(file)
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.lower().endswith(_IMAGES) else None
                if content is not None:
                    if member.size > _LARGEST:
                        raise DataError(f"{path}: an image must have at most {_LARGEST >> 20} MiB, got {member.name!r}")
                    yield Path(member.name).name, content.read()
    except DataError:
        raise
    except Exception as error:  # damaged files make tarfile raise errors of a dozen types
        raise DataError(f"{path}: cannot be read: {error or type(error).__name__}") from error


def _parse_name(path: StrPath, name: str) -> tuple[int | str, int]:
    stem = Path(name.removesuffix(".chip.jpg")).stem if name.endswith(".chip.jpg") else Path(name).stem
    if match := _AAF.match(stem):
        return int(match["id"]), int(match["age"])
    if match := _UTK.match(stem):
        return stem, int(match["age"])
    rule = "the name of an image must contain the age: 00010A02.jpg or 26_1_0_20170116.jpg"
    raise FileFormatError(path, None, rule, f"got {name!r}")


def _pixels(path: StrPath, name: str, content: bytes, size: int, color: bool) -> NDArray[np.uint8]:
    with needed_by("an image"):
        from PIL import Image
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
            if image.width * image.height > _LARGEST:
                raise ValueError(f"{image.width} x {image.height} pixels are too many")
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            square = image.convert("RGB" if color else "L").crop((left, top, left + side, top + side))
            if side != size:
                square = square.resize((size, size), Image.Resampling.LANCZOS)
            return np.asarray(square)
    except Exception as error:  # damaged files make Pillow raise errors of a dozen types
        raise DataError(f"{path}: {name} is not an image that can be read: {error}") from error
