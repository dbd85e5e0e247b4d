"""Interactions that are sorted on disk: the table, and the models, of a file that is read at once."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from rankbound.data import as_interactions, loading, ratings
from rankbound.data.interactions import Interactions
from rankbound.data.ratings import read_mapped_ratings, read_ratings
from rankbound.errors import DataError
from rankbound.models import MatrixFactorization, VectorModel
from tests.tiers import examples

COLUMNS = ("users", "items", "user_names", "item_names", "ratings", "timestamps")


def same(found: Interactions, expected: Interactions) -> bool:
    pairs = [(getattr(found, name), getattr(expected, name)) for name in COLUMNS]
    assert found.notes == expected.notes
    return all((a is None and b is None) or (a.dtype == b.dtype and a.tolist() == b.tolist()) for a, b in pairs)


def write(path: Path, seed: int, header: str, text: bool, rows: int = 300) -> None:
    random = np.random.default_rng(seed)
    with path.open("w") as stream:
        stream.write(header + "\n")
        for _ in range(rows):
            user, item = random.integers(0, 40), random.integers(0, 15)
            numbers = [f"{random.integers(1, 6)}", f"{random.integers(0, 9)}"][: header.count(",") - 1]
            stream.write(",".join([f"u{user}" if text else f"{user}", f"{item}", *numbers]) + "\n")


@given(
    st.integers(0, 5), st.sampled_from(["user,item", "user,item,rating", "user,item,rating,timestamp"]), st.booleans(),
    st.sampled_from([1, 7, 50, 1000]), st.sampled_from([3, 64, 1000]),
)  # fmt: skip
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_sorted_on_disk_is_the_table(
    tmp_path: Path, seed: int, header: str, text: bool, bucket: int, step: int
) -> None:
    path = tmp_path / "data.csv"
    write(path, seed, header, text)
    with mock.patch.multiple(ratings, BUCKET=bucket, _STEP=step):
        found = read_mapped_ratings(path, {}, tmp_path)
    assert same(found, read_ratings(path))
    assert "repeated pairs" in found.notes[0]
    assert isinstance(found.users.base, np.memmap) or isinstance(found.users, np.memmap)
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv"]  # temporary files have no name


def test_large_files_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKBOUND_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data.csv"
    write(path, 0, "who,item,rating", text=True)
    expected = as_interactions(path, user="who")
    monkeypatch.setattr(loading, "_LARGE_FILE", 1)
    assert same(as_interactions(path, user="who"), expected)
    with mock.patch.object(loading, "read_mapped_ratings", side_effect=AssertionError):
        assert same(as_interactions(path, user="who"), expected)
    with pytest.raises(DataError, match="the header must have a column for the user"):
        as_interactions(path)  # other columns are another entry


@pytest.mark.parametrize("loss", ["softmax", "nDCG"])
@pytest.mark.parametrize("negatives", ["all", 2])
def test_a_model_of_mapped_interactions_has_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, negatives: int | str
) -> None:
    monkeypatch.setattr(loading, "cache_folder", lambda name: tmp_path / name)
    monkeypatch.setattr("rankbound.data.array_cache.cache_folder", lambda name: tmp_path / name)
    path = tmp_path / "data.csv"
    write(path, 1, "user,item", text=True)
    model = MatrixFactorization(4, loss, epochs=2, negatives=negatives, vectors=VectorModel("both", init=0.1))
    expected = model.fit(str(path))
    monkeypatch.setattr(loading, "_LARGE_FILE", 1)
    found = MatrixFactorization(**model.get_params()).fit(str(path))
    assert isinstance(found.seen_.items, np.memmap)
    assert found.user_vectors_.tolist() == expected.user_vectors_.tolist()
    assert found.item_vectors_.tolist() == expected.item_vectors_.tolist()
    found.save(tmp_path / "model")
