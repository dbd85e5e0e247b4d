"""Every reader and parser against damaged input; ``make fuzz`` does the same for hours, guided by coverage."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.mutations import SEPARATOR, TOKENS, mutated
from fuzz.targets import TARGETS, tried

pytestmark = pytest.mark.full("reads damaged input many times")

_SLOW = {"models": 40, "store": 30, "scores": 40, "study": 40, "converted": 40, "trec": 60}  # inputs; others get 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    """A folder for inputs; caches lie beside it and not where other tests have theirs."""
    folder = tmp_path_factory.mktemp("fuzz")
    before = os.environ.get("RANKBOUND_CACHE")
    os.environ["RANKBOUND_CACHE"] = str(folder / "cache")
    yield folder / "input"
    os.environ.pop("RANKBOUND_CACHE") if before is None else os.environ.update(RANKBOUND_CACHE=before)


@pytest.mark.parametrize("name", TARGETS)
def test_valid_inputs_are_read(name: str, folder: Path) -> None:
    """Mutations of an input that is not valid would all be refused for the same reason."""
    for seed in TARGETS[name].seeds():
        read = tried(TARGETS[name], seed, folder)
        assert read
        assert all(value is not None for value in read), seed[:80]


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_or_refused_in_words(name: str, folder: Path) -> None:
    """Anything but a return or an error of rankbound goes through `tried` and fails here."""
    seeds = TARGETS[name].seeds()

    @settings(
        max_examples=_SLOW.get(name, 100), derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.sampled_from(seeds), st.integers(0, 2**32))
    def damaged(seed: bytes, choices: int) -> None:
        tried(TARGETS[name], mutated(seed, random.Random(choices)), folder)

    damaged()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused_in_words(name: str, folder: Path) -> None:
    """Bytes that no valid input resembles, and nothing at all."""
    whole = st.lists(st.sampled_from([*TOKENS, SEPARATOR]), max_size=12).map(b"".join)

    @settings(max_examples=25, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.binary(max_size=200), whole, st.text(max_size=100).map(lambda text: text.encode())))
    def anything(data: bytes) -> None:
        tried(TARGETS[name], data, folder)

    tried(TARGETS[name], b"", folder)
    anything()
