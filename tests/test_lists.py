"""Lists: all constructors build the same arrays, and invalid input raises DataError."""

from __future__ import annotations

import collections

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

pytest.importorskip("pandas")

import pandas as pd

from rankbound import Lists, evaluate
from rankbound.data import large
from rankbound.data.judged import from_frames
from rankbound.errors import DataError
from rankbound.lists import Coverage, sort_within_queries


def same(a, b):
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.offsets, b.offsets)
    np.testing.assert_array_equal(a.scores, b.scores)


def test_all_constructors_agree(tmp_path):
    plain = Lists([2, 0, 1, 0, 1], [0, 3, 5], [0.3, 0.9, 0.1, 0.2, 0.7])
    same(plain, Lists.from_qid([2, 0, 1, 0, 1], [7, 7, 7, 8, 8], [0.3, 0.9, 0.1, 0.2, 0.7]))
    mask = [[1, 1, 1], [1, 1, 0]]
    same(plain, Lists.from_padded([[2, 0, 1], [0, 1, 9]], mask, [[0.3, 0.9, 0.1], [0.2, 0.7, np.nan]]))
    frame = pl.DataFrame({"qid": [7, 7, 7, 8, 8], "label": plain.labels, "score": plain.scores})
    same(plain, Lists.from_frame(frame))
    same(plain, Lists.from_frame(frame.lazy()))
    same(plain, Lists.from_frame(pd.DataFrame({n: frame[n].to_numpy() for n in frame.columns})))
    frame.write_parquet(tmp_path / "lists.parquet")
    frame.write_csv(tmp_path / "lists.csv")
    same(plain, Lists.from_frame(tmp_path / "lists.parquet"))
    same(plain, Lists.from_frame(tmp_path / "lists.csv"))
    renamed = frame.rename({"qid": "session", "label": "clicked", "score": "model"})
    same(plain, Lists.from_frame(renamed, qid="session", label="clicked", score="model"))
    qrels = {"x": {"a": 2, "b": 0, "c": 1}, "y": {"a": 0, "b": 1}}
    run = {"x": {"a": 0.3, "b": 0.9, "c": 0.1}, "y": {"a": 0.2, "b": 0.7}}
    same(plain, Lists.from_dicts(qrels, run))
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} {v}\n" for q in qrels for d, v in qrels[q].items()))
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 1 {v} t\n" for q in run for d, v in run[q].items()))
    same(plain, Lists.from_trec(tmp_path / "qrels", tmp_path / "run"))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40))
@examples(60)
def test_rows_of_a_query_need_not_be_neighbors(rows):
    qid, labels = (list(column) for column in zip(*rows, strict=True))
    lists = Lists.from_qid(labels, qid, ids=np.arange(len(rows)))
    assert lists.qids.tolist() == list(dict.fromkeys(qid))
    for q, name in enumerate(lists.qids):
        part = slice(lists.offsets[q], lists.offsets[q + 1])
        assert lists.ids[part].tolist() == [i for i, other in enumerate(qid) if other == name]
        assert lists.labels[part].tolist() == [label for label, other in zip(labels, qid, strict=True) if other == name]


@given(st.lists(st.lists(st.integers(-5, 5), max_size=30), min_size=1, max_size=8), st.booleans())
@examples(80)
def test_sorting_within_queries(queries, as_float):
    keys = np.array([k for q in queries for k in q], dtype=float if as_float else np.int64)
    offsets = np.concatenate(([0], np.cumsum([len(q) for q in queries])))
    order = sort_within_queries(keys, offsets)
    expected = [
        lo + i for lo, q in zip(offsets, queries, strict=False) for i in sorted(range(len(q)), key=q.__getitem__)
    ]
    assert order.tolist() == expected


def test_lists_cannot_be_changed():
    given_labels = np.array([1, 0], dtype=np.int32)
    lists = Lists(given_labels, [0, 2])
    with pytest.raises(ValueError, match="read-only"):
        lists.labels[0] = 5
    with pytest.raises(AttributeError):
        lists.labels = given_labels
    given_labels[0] = 1  # the caller's own array stays the caller's
    assert lists.labels.base is not None


def test_whole_numbers_are_kept_as_integers():
    assert Lists([1.0, 0.0], [0, 2]).labels.dtype == np.int32
    assert Lists([True, False], [0, 2]).labels.dtype == np.int32
    assert Lists([0.5, 1.0], [0, 2]).labels.dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 0], [0, 3]), r"offsets must end with the number of items, 2, got 3"),
        (([1, 0], [1, 2]), r"offsets must begin with 0, got \[1\]"),
        (([1, 0], []), "offsets must begin with 0"),
        (([1, 0], [0, 2, 1, 2]), "offsets must never decrease, got 2 then 1"),
        (([1, 0], [0.0, 2.0]), "offsets must be 1-D integers"),
        (([[1, 0]], [0, 2]), r"labels must be 1-D, got shape \(1, 2\)"),
        ((["x", "y"], [0, 2]), "labels must be numbers"),
        (([1, np.nan], [0, 2]), "labels must be finite, got nan at position 1"),
        (([1, 2**40], [0, 2]), r"labels must be below 2\^31"),
        (([1, 0], [0, 2], [0.1]), "scores must have 2 entries"),
        (([1, 0], [0, 2], [0.1, np.inf]), r"scores must be finite, got inf at position 1 \(query 0\)"),
        (([1, 0], [0, 2], ["a", "b"]), "scores must be numbers"),
        (([1, 0], [0, 2], None, ["a"]), "ids must have 2 entries, got 1"),
        (([1, 0], [0, 2], None, None, ["a", "b"]), "qids must have 1 entries, got 2"),
        (([1, 0], [0, 2], None, None, None, [3]), "depths must be between 0 and the size"),
    ],
)
def test_invalid_arrays_raise_data_error(arguments, message):
    with pytest.raises(DataError, match=message):
        Lists(*arguments)


def test_constructors_check_shapes():
    with pytest.raises(DataError, match="qid must have one entry per label"):
        Lists.from_qid([1, 0], [1])
    with pytest.raises(DataError, match="labels and mask must be 2-D of one shape"):
        Lists.from_padded([[1, 0]], [[True]])
    with pytest.raises(DataError, match="scores must have the shape of mask"):
        Lists.from_padded([[1, 0]], [[True, True]], [[0.5]])


def test_frames_are_checked(tmp_path):
    with pytest.raises(DataError, match="no column for label"):
        Lists.from_frame(pl.DataFrame({"qid": [1]}))
    with pytest.raises(DataError, match="no column 'clicks' for label; the columns are qid"):
        Lists.from_frame(pl.DataFrame({"qid": [1]}), label="clicks")
    with pytest.raises(DataError, match="column 'label' must hold numbers"):
        Lists.from_frame(pl.DataFrame({"qid": [1], "label": ["good"]}))
    with pytest.raises(DataError, match="column 'label' must be filled in every row, got 1 empty"):
        Lists.from_frame(pl.DataFrame({"qid": [1, 1], "label": [1, None]}))
    with pytest.raises(DataError, match="no such file"):
        Lists.from_frame(tmp_path / "nothing.csv")
    (tmp_path / "lists.xlsx").write_text("")
    (tmp_path / "broken.parquet").write_text("this is not parquet")
    with pytest.raises(DataError, match=r"expected a \.parquet"):
        Lists.from_frame(tmp_path / "lists.xlsx")
    with pytest.raises(DataError, match="cannot be read"):
        Lists.from_frame(tmp_path / "broken.parquet")
    with pytest.raises(DataError, match="expected a polars or pandas frame"):
        Lists.from_frame(42)


def test_default_dicts_are_not_changed_by_lookups():
    qrels = {"q": collections.defaultdict(int, {"a": 1})}
    lists = Lists.from_dicts(qrels, {"q": {"x": 0.5, "a": 0.25}})
    assert lists.labels.tolist() == [0, 1]
    assert qrels["q"] == {"a": 1}


@pytest.mark.parametrize(
    "labels",
    [(1, 0, 2), (True, False, True), (255, 256, 0), (-1, 1, 0), (1.0, 2.0, 0.0), (0.5, 1, 2), np.array([3, 0, 1])],
)
@pytest.mark.parametrize("ranked", ["abc", "ab", "c", "cax"])
def test_labels_in_dicts_do_not_depend_on_the_lookup(labels, ranked):
    """Plain dicts take fast paths for small integer labels and where every ranked document is judged."""
    judged = dict(zip("abc", labels, strict=True))
    run = {name: {document: -rank for rank, document in enumerate(ranked)} for name in ("x", "y")}
    plain = Lists.from_dicts({"x": judged, "y": {"a": 1, "b": 0, "c": 0, "x": 2}}, run)
    others = {"x": collections.OrderedDict(judged), "y": collections.OrderedDict(a=1, b=0, c=0, x=2)}
    same(plain, Lists.from_dicts(others, run))
    by_name = dict(zip(plain.ids[: len(set(ranked) | set("abc"))].tolist(), plain.labels.tolist(), strict=False))
    assert {name: by_name[name] for name in "abc"} == {name: float(label) for name, label in judged.items()}


# ---- judgments and runs that do not cover each other -----------------------------------------------------------------

QRELS = {"x": {"a": 2, "b": -1, "c": 1}, "y": {"a": 0, "b": 1}, "never returned": {"a": 1}}
RUN = {
    "x": {"b": 0.9, "new": 0.5, "a": 0.3},
    "y": {"b": 0.7, "a": 0.2},
    "not judged": {"a": 1.0},
    "nor this": {"b": 1.0},
}
COVERAGE = Coverage(
    missing_queries=1,
    unjudged_queries=2,
    shared_queries=2,
    returned_documents=5,
    judged_documents=4,
    ranked_queries=2,
    fractions=(np.array([2 / 3, 1.0]),),
)


def by_dicts(_tmp_path, qrels, run, **policy):
    return Lists.from_dicts(qrels, run, **policy)


def by_files(tmp_path, qrels, run, **policy):
    (tmp_path / "qrels").write_text("".join(f"{q[:3]} 0 {d} {v}\n" for q in qrels for d, v in qrels[q].items()))
    (tmp_path / "run").write_text("".join(f"{q[:3]} Q0 {d} 1 {v} t\n" for q in run for d, v in run[q].items()))
    return Lists.from_trec(tmp_path / "qrels", tmp_path / "run", **policy)


def by_frames(_tmp_path, qrels, run, **policy):
    return from_frames(frame(qrels, "label"), frame(run, "score"), **policy)


def frame(queries, number):
    rows = [(q, d, v) for q in queries for d, v in queries[q].items()]
    return pl.DataFrame(rows, schema=["qid", "docid", number], orient="row")


READERS = pytest.mark.parametrize("read", [by_dicts, by_files, by_frames])


@READERS
def test_documents_without_a_judgment_are_marked(read, tmp_path):
    lists = read(tmp_path, QRELS, RUN)
    assert list(lists.ids) == ["b", "new", "a", "c", "b", "a"]
    assert lists.labels.tolist() == [-1, 0, 2, 1, 1, 0]  # a negative judgment is a judgment
    assert lists.judged.tolist() == [True, False, True, True, True, True]
    assert lists.depths.tolist() == [3, 2]
    assert lists.coverage == COVERAGE
    np.testing.assert_array_equal(np.concatenate(lists.coverage.fractions), [2 / 3, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        lists.judged[0] = False
    assert lists.with_scores(np.arange(6)).judged is not None
    assert lists.with_scores(np.arange(6)).coverage == lists.coverage


@READERS
def test_queries_that_the_run_lacks_are_counted_under_every_policy(read, tmp_path):
    lists = read(tmp_path, QRELS, RUN, missing="zero")
    assert len(lists) == 3
    assert lists.depths.tolist() == [3, 2, 0]
    assert lists.coverage == COVERAGE
    np.testing.assert_array_equal(np.concatenate(lists.coverage.fractions), [2 / 3, 1.0])


@READERS
def test_nothing_is_marked_where_every_document_is_judged(read, tmp_path):
    assert read(tmp_path, QRELS, RUN, judged_only=True).judged is None
    complete = {name: {d: RUN[name][d] for d in RUN[name] if d in QRELS[name]} for name in ("x", "y")}
    lists = read(tmp_path, QRELS, complete)
    assert lists.judged is None
    assert (lists.coverage.missing_queries, lists.coverage.unjudged_queries) == (1, 0)
    assert lists.coverage.judged == 1.0


@given(st.data())
@examples(100)
def test_marks_follow_the_judgments_whatever_the_reader(data):
    names, documents = st.sampled_from("pqrs"), st.sampled_from("abcdef")
    qrels = data.draw(st.dictionaries(names, st.dictionaries(documents, st.integers(-1, 3), min_size=1), min_size=1))
    run = data.draw(st.dictionaries(names, st.dictionaries(documents, st.floats(0, 1), min_size=1), min_size=1))
    missing = data.draw(st.sampled_from(["ignore", "zero"]))
    if not qrels.keys() & run.keys():
        return
    for read in (by_dicts, by_frames):
        lists = read(None, qrels, run, missing=missing)
        judged = np.ones(len(lists.labels), bool) if lists.judged is None else lists.judged
        for q, name in enumerate(lists.query_ids):
            items = range(lists.offsets[q], lists.offsets[q + 1])
            assert {lists.ids[i] for i in items} == qrels[name].keys() | run.get(name, {}).keys()
            assert [bool(judged[i]) for i in items] == [lists.ids[i] in qrels[name] for i in items]
            assert [lists.labels[i] for i in items] == [qrels[name].get(lists.ids[i], 0) for i in items]


@pytest.mark.parametrize("missing", ["ignore", "zero"])
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_parts_count_queries_that_come_in_any_part(tmp_path, monkeypatch, missing, rows):
    """Also when the last parts have no judged query at all."""
    frame(RUN, "score").write_parquet(tmp_path / "run.parquet")
    monkeypatch.setattr(large, "ROWS", rows)
    result = evaluate(frame(QRELS, "label"), tmp_path / "run.parquet", "RR", missing=missing)
    assert result.coverage == evaluate(QRELS, RUN, "RR", missing=missing).coverage
    assert result.query_ids.tolist() == ["x", "y", *(["never returned"] if missing == "zero" else [])]


def test_a_mask_must_fit():
    assert Lists([1, 0], [0, 2], judged=[True, True]).judged is None
    assert Lists([1, 0], [0, 2], judged=[1, 0]).judged.tolist() == [True, False]
    with pytest.raises(DataError, match="judged must have 2 entries, got 3"):
        Lists([1, 0], [0, 2], judged=[True, False, True])
    with pytest.raises(DataError, match="judged must be true or false everywhere, got 2"):
        Lists([1, 0], [0, 2], judged=[2, 0])
