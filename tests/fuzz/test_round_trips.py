"""What rankbound writes it reads back as it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from polars.testing import assert_frame_equal

from rankbound.checkpoints import Checkpoints
from rankbound.cli.output import write_table
from rankbound.cli.rank import Format, _write
from rankbound.data.array_cache import read_cached
from rankbound.data.frames import read_frame
from rankbound.data.interactions import Interactions
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.trec import read_run
from rankbound.lists import Lists
from rankbound.measures import BOUNDINGS, STANDARDIZATIONS, Definition, definitions, parse_measure

pytestmark = pytest.mark.full("reads damaged input many times")

few = settings(max_examples=25, derandomize=True, deadline=None, database=None)
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(categories=("L", "N", "P"), codec="utf-8"), min_size=1, max_size=8)


@few
@given(st.lists(words, min_size=1, max_size=6, unique=True), st.data())
def test_a_ranking_written_as_a_trec_run(names: list[str], data: st.DataObject) -> None:
    scores = np.array(data.draw(st.lists(finite, min_size=len(names), max_size=len(names))))
    lists = Lists(np.zeros(len(names), int), [0, len(names)], qids=np.array(["q"]))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run.txt"
        _write(path, Format.trec, lists, np.array(names), scores, "tag")
        read = read_run(path)
    assert dict(zip(read["docid"], read["score"], strict=True)) == dict(zip(names, scores.tolist(), strict=True))


@few
@given(st.lists(st.tuples(words, finite), min_size=1, max_size=5), st.sampled_from(("csv", "parquet")))
def test_a_table_written_as_csv_or_parquet(rows: list[tuple[str, float]], ending: str) -> None:
    frame = pl.DataFrame(
        {"name": [f"{'=+-@x'[len(name) % 5]}x{name}" for name, _ in rows], "value": [value + 0.5 for _, value in rows]}
    )
    with tempfile.TemporaryDirectory() as folder:
        write_table(frame, f"{folder}/table.{ending}")
        assert_frame_equal(read_frame(f"{folder}/table.{ending}"), frame, check_exact=True)


@few
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 3)), elements=st.floats(-1e9, 1e9, width=32)),
    st.data(),
)
def test_features_written_as_letor_lines(features: np.ndarray, data: st.DataObject) -> None:
    rows = len(features)
    labels = data.draw(st.lists(st.integers(-1, 31), min_size=rows, max_size=rows))
    qids = sorted(data.draw(st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=rows, max_size=rows)))
    pairs = [" ".join(f"{at}:{float(value)!r}" for at, value in enumerate(row, 1)) for row in features]
    text = "".join(f"{label} qid:{q} {row}\n" for label, q, row in zip(labels, qids, pairs, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_text(text)
        read = read_letor(path)
    np.testing.assert_array_equal(read.features, features)
    assert read.lists.labels.tolist() == labels
    assert np.repeat(read.lists.query_ids, read.lists.sizes).tolist() == qids


@few
@given(
    st.dictionaries(words, arrays.arrays(st.sampled_from((np.float32, np.int64)), (2, 3)), max_size=3),
    st.dictionaries(words, st.one_of(st.integers(-(2**53), 2**53), finite, words, st.none()), max_size=3),
)
def test_a_checkpoint(weights: dict[str, np.ndarray], metadata: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Checkpoints(folder, {"a": 1}).save(3, weights, metadata)
        found = Checkpoints(folder, {"a": 1}).load()
    assert found is not None
    assert found[1] == metadata
    assert found[0].keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(found[0][name], array)


@few
@given(st.lists(st.tuples(words, words, st.floats(0, 5, width=32)), min_size=1, max_size=6))
def test_interactions_in_the_cache(rows: list[tuple[str, str, float]]) -> None:
    table = Interactions.from_columns(*zip(*rows, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_bytes(repr(rows).encode())
        read_cached([source], lambda: table, Interactions)
        found = read_cached([source], lambda: (_ for _ in ()).throw(AssertionError("read anew")), Interactions)
    for name in ("users", "items", "user_names", "item_names", "ratings"):
        assert getattr(found, name).tolist() == getattr(table, name).tolist()
    assert found.notes == table.notes


@few
@given(arrays.arrays(np.float32, (3, 2)), st.integers(0, 2**40))
def test_letor_data_in_the_cache(features: np.ndarray, qid: int) -> None:
    table = LetorData(Lists([1, 0, 2], [0, 2, 3], qids=np.array([qid, -1])), features)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_bytes(features.tobytes() + str(qid).encode())
        read_cached([source], lambda: table, LetorData)
        found = read_cached([source], lambda: (_ for _ in ()).throw(AssertionError("read anew")), LetorData)
    np.testing.assert_array_equal(found.features, features)
    assert found.lists.query_ids.tolist() == [qid, -1]


@few
@given(
    st.sampled_from([*definitions()]),
    st.sampled_from(["", *BOUNDINGS, *STANDARDIZATIONS]),
    st.integers(1, 999_999_999),
    st.data(),
)
def test_a_measure_reads_as_it_prints(info: Definition, wrapper: str, k: int, data: st.DataObject) -> None:
    settings_: dict[str, object] = {}
    for name, parameter in info.parameters.items():
        if parameter.choices:
            settings_[name] = data.draw(st.sampled_from(parameter.choices))
        elif isinstance(parameter.default, float):
            settings_[name] = data.draw(st.floats(0, 1, exclude_min=True, exclude_max=True))
        else:
            settings_[name] = data.draw(st.floats(0, 1000, exclude_min=True))
    if settings_.get("variant") == "published":
        settings_["div"] = "k"
    inner = ", ".join(f"{name}={value!r}" for name, value in settings_.items() if name in info.parameters)
    cutoff = "" if info.cutoff == "none" else f"@{k}"
    name = f"{info.name}({inner}){cutoff}"
    bounded = wrapper not in ("UL1", "EB") or not (info.lower_is_better or info.floor < 0)
    measure = parse_measure(f"{wrapper}({name})" if wrapper and bounded else name)
    assert parse_measure(str(measure)) == measure
