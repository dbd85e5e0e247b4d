"""LETOR, SVMlight and LightGBM text."""

from __future__ import annotations

import contextlib
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbound.data import text_chunks
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.letor_text import BlockParser
from rankbound.data.synthetic import synthetic_letor
from rankbound.errors import DataError, FileFormatError
from rankbound.lists import Lists
from tests.tiers import examples


def written(folder: Path, text: str, name: str = "data.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_letor_line_gives_label_qid_features_and_document_id(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "2 qid:10 1:0.5 2:-1 3:1e-3 #docid = GX01 inc = 1 prob = 0.2\n0 qid:10 1:0 2:0 3:7 #docid = GX02 inc = 1\n"
        "1 qid:11 1:0 2:4 3:0 #docid=GX03\n",
    )
    data = read_letor(path)
    assert data.lists.labels.tolist() == [2, 0, 1]
    assert data.lists.qids.tolist() == [10, 11]
    assert data.lists.offsets.tolist() == [0, 2, 3]
    assert data.lists.ids.tolist() == ["GX01", "GX02", "GX03"]
    np.testing.assert_array_equal(data.features, np.array([[0.5, -1, 1e-3], [0, 0, 7], [0, 4, 0]], np.float32))


def test_null_is_nan_and_left_out_features_are_zero(tmp_path: Path) -> None:
    data = read_letor(written(tmp_path, "1 qid:1 1:NULL 3:2\n0 qid:1 2:5\n0 qid:1\n"))
    np.testing.assert_array_equal(data.features, np.array([[np.nan, 0, 2], [0, 5, 0], [0, 0, 0]], np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "1 qid:1 1:5 2:6\r\n0 qid:2 1:7 2:8\r\n",
        "1 qid:1 1:5 2:6 \n0 qid:2 1:7 2:8 \n",
        "1\tqid:1\t1:5\t2:6\n0\tqid:2\t1:7\t2:8\n",
        "\n# a comment alone\n  1  qid:1   1:5 2:6\n\n0 qid:2 1:7 2:8",
        "\ufeff1 qid:1 1:5 2:6\n0 qid:2 1:7 2:8\n",
        "1.0 qid:+1 1:+5 2:6e0\n0 qid:2 1:7. 2:8\n",
    ],
    ids=["windows", "blank at the end", "tabs", "blank lines and no last break", "byte order mark", "spelling"],
)
def test_unusual_spacing_is_accepted(tmp_path: Path, text: str) -> None:
    data = read_letor(written(tmp_path, text))
    assert data.lists.labels.tolist() == [1, 0]
    assert data.lists.qids.tolist() == [1, 2]
    assert data.features.tolist() == [[5, 6], [7, 8]]
    assert data.lists.ids is None


GOOD = "1 qid:1 1:5 2:6\n"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("1 qid:1 1:5 2:", "a feature must be written index:value, got '2:' (truncated line?)"),
        ("1 qid:1 1:5 2", "a feature must be written index:value, got '2' (truncated line?)"),
        ("1 qid:1 0:5 2:6", "a feature index must be an integer from 1 to 65536, got '0:5'"),
        ("1 qid:1 x:5", "a feature index must be an integer from 1 to 65536, got 'x:5'"),
        ("1 qid:1 1.5:5", "a feature index must be an integer from 1 to 65536, got '1.5:5'"),
        ("1 qid:1 999999999:5", "a feature index must be an integer from 1 to 65536, got '999999999:5'"),
        ("1 qid:1 2:5 2:6", "feature indices must increase, got 2 after 2"),
        ("1 qid:1 2:5 1:6", "feature indices must increase, got 1 after 2"),
        ("1 qid:1 1:5 2:abc", "a feature value must be a finite number or NULL, got '2:abc'"),
        ("1 qid:1 1:inf 2:6", "a feature value must be a finite number or NULL, got '1:inf'"),
        ("1 qid:1 1:1e39 2:6", "a feature value must be a finite number or NULL, got '1:1e39'"),
        ("1 1:5 2:6", "qid is missing: the second field must be qid:number, got '1:5'"),
        ("1", "qid is missing: the second field must be qid:number, got 'nothing'"),
        ("1 qid:x 1:5 2:6", "qid must be an integer below 2^63, got 'qid:x'"),
        ("1 qid:1.5 1:5 2:6", "qid must be an integer below 2^63, got 'qid:1.5'"),
        ("1 qid:9999999999999999999 1:5", "qid must be an integer below 2^63, got 'qid:9999999999999999999'"),
        ("x qid:1 1:5 2:6", "a line must begin with a number, the label, got 'x'"),
        ("NULL qid:1 1:5 2:6", "a line must begin with a number, the label, got 'NULL'"),
        ("nan qid:1 1:5 2:6", "the label must lie between -1 and 31, got 'nan'"),
        ("32 qid:1 1:5 2:6", "the label must lie between -1 and 31, got '32'"),
        ("-2 qid:1 1:5 2:6", "the label must lie between -1 and 31, got '-2'"),
    ],
)
def test_bad_line_is_named_with_file_number_rule_and_what_came(tmp_path: Path, line: str, rule: str) -> None:
    path = written(tmp_path, GOOD * 2 + line + "\n" + GOOD)
    with pytest.raises(FileFormatError) as caught:
        read_letor(path)
    assert str(caught.value) == f"{path}:3: {rule}"


def test_line_numbers_are_right_in_later_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, GOOD * 100 + "1 qid:1 1:x\n")
    monkeypatch.setattr(text_chunks.line_chunks, "__defaults__", (64,))
    with pytest.raises(FileFormatError, match=r"data\.txt:101: a feature value must be"):
        read_letor(path)


def test_a_qid_that_only_a_later_line_has_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "1 1:5\n0 qid:1 1:5\n")
    with pytest.raises(FileFormatError, match=r":2: either all lines or none have a qid, got 'qid:1' here only"):
        read_letor(path)


def test_wider_label_range_can_be_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "1000 qid:1 1:5\n")
    assert read_letor(path, label_range=(0, 2000)).lists.labels.tolist() == [1000]


def test_large_qids_keep_all_their_digits(tmp_path: Path) -> None:
    path = written(tmp_path, f"1 qid:{2**60 + 1} 1:5\n0 qid:{2**60} 1:5\n")
    assert read_letor(path).lists.qids.tolist() == [2**60 + 1, 2**60]


def test_queries_that_are_not_contiguous_are_brought_together_with_a_note(tmp_path: Path) -> None:
    data = read_letor(
        written(tmp_path, "1 qid:7 1:1 #a\n0 qid:3 1:2 #b\n2 qid:7 1:3 #c\n0 qid:3 1:4 #d\n0 qid:5 1:5 #e\n")
    )
    assert data.lists.qids.tolist() == [7, 3, 5]
    assert data.lists.offsets.tolist() == [0, 2, 4, 5]
    assert data.features.ravel().tolist() == [1, 3, 2, 4, 5]
    assert data.lists.ids.tolist() == ["a", "c", "b", "d", "e"]
    assert data.notes == ("the rows of 2 queries were not adjacent and were grouped together",)


def test_group_file_beside_the_data_gives_the_queries(tmp_path: Path) -> None:
    path = tmp_path / "rank.train.gz"
    path.write_bytes(gzip.compress(b"0 2:1\n1 1:3\n2 1:5 3:1\n"))
    written(tmp_path, "1\n2\n", "rank.train.query")
    data = read_letor(path)
    assert data.lists.offsets.tolist() == [0, 1, 3]
    assert data.features.tolist() == [[0, 1, 0], [3, 0, 0], [5, 0, 1]]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("1\n3\n", r"group sizes must add up to the rows of .*, 3, got 4"),
        ("1\nx\n", r"query:2: a group size must be a positive integer, got 'x'"),
        (None, r"data.txt:1: qid is missing: .*, no group file .*data\.txt\.query"),
    ],
)
def test_wrong_group_files_are_refused(tmp_path: Path, sizes: str | None, message: str) -> None:
    path = written(tmp_path, "0 2:1\n1 1:3\n2 1:5 3:1\n")
    if sizes is not None:
        written(tmp_path, sizes, "data.txt.query")
    with pytest.raises(DataError, match=message):
        read_letor(path)


def test_compressed_files_are_read_and_damaged_ones_refused(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD.encode() * 1000)
    path = tmp_path / "data.txt.gz"
    path.write_bytes(whole)
    assert len(read_letor(path).features) == 1000
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"data\.txt\.gz: cannot be read"):
        read_letor(path)


def test_zstandard_files_are_read(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "data.txt.zst"
    path.write_bytes(zstandard.compress(GOOD.encode() * 10))
    assert len(read_letor(path).features) == 10


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_empty_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"data\.txt: has no line of data"):
        read_letor(written(tmp_path, text))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt: cannot be read: No such file"):
        read_letor(tmp_path / "absent.txt")


def test_several_files_are_read_as_one_with_the_widest_features(tmp_path: Path) -> None:
    first = written(tmp_path, "1 qid:1 1:1\n", "a.txt")
    second = written(tmp_path, "0 qid:2 1:2 3:4\n", "b.txt")
    data = read_letor([first, second])
    assert data.features.tolist() == [[1, 0, 0], [2, 0, 4]]
    assert data.lists.qids.tolist() == [1, 2]


def test_lists_from_letor_are_those_of_the_reader(tmp_path: Path) -> None:
    assert Lists.from_letor(written(tmp_path, GOOD)).labels.tolist() == [1]


def test_take_keeps_rows_of_the_chosen_queries_in_the_order_given() -> None:
    data = synthetic_letor(queries=6, seed=4)
    some = data.take([4, 1])
    rows = np.r_[slice(*data.lists.offsets[4:6]), slice(*data.lists.offsets[1:3])]
    np.testing.assert_array_equal(some.features, data.features[rows])
    np.testing.assert_array_equal(some.lists.labels, data.lists.labels[rows])
    assert some.lists.qids.tolist() == [5, 2]


def test_features_must_fit_the_lists() -> None:
    with pytest.raises(DataError, match="features must have one row per item, 2, got shape"):
        LetorData(Lists([1, 0], [0, 2]), np.zeros((3, 1), np.float32))


numbers = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-1e6, 1e6, width=32).map(repr),
    st.floats(-10, 10).map(lambda value: f"{value:.6f}"),
)
features = st.dictionaries(st.integers(1, 12), numbers, max_size=12)
rows = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), features), min_size=1, max_size=30)


@given(rows=rows, size=st.integers(1, 400), dense=st.booleans())
@examples(150)
def test_any_rows_come_back_whatever_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, dict[int, str]]], size: int, dense: bool
) -> None:
    if dense:
        rows = [(label, qid, {index: pairs.get(index, "0") for index in range(1, 13)}) for label, qid, pairs in rows]
    rows.sort(key=lambda row: row[1])
    lines = [
        f"{label} qid:{qid} " + " ".join(f"{index}:{pairs[index]}" for index in sorted(pairs))
        for label, qid, pairs in rows
    ]
    path = tmp_path_factory.mktemp("letor") / "data.txt"
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_chunks.line_chunks, "__defaults__", (size,))
        data = read_letor(path)
    width = max((max(pairs, default=0) for _, _, pairs in rows), default=0)
    expected = np.zeros((len(rows), width), np.float32)
    for row, (_, _, pairs) in enumerate(rows):
        for index, value in pairs.items():
            expected[row, index - 1] = float(value)
    np.testing.assert_array_equal(data.features, expected)
    assert data.lists.labels.tolist() == [label for label, _, _ in rows]
    assert np.asarray(data.lists.qids)[data.lists.query_of_item].tolist() == [qid for _, qid, _ in rows]


@given(st.binary(max_size=200))
@examples(200)
def test_garbage_is_read_or_refused_with_our_own_error(garbage: bytes) -> None:
    with contextlib.suppress(FileFormatError):
        BlockParser("garbage", (-1, 31)).parse(garbage, 1)


def test_arrays_equal_scikit_learns_on_generated_rows(tmp_path: Path) -> None:
    svmlight = pytest.importorskip("sklearn.datasets")
    rng = np.random.default_rng(3)
    X = np.where(rng.random((400, 30)) < 0.4, 0, rng.gamma(1, 5, (400, 30)))
    y, qid = rng.integers(0, 5, 400), np.sort(rng.integers(1, 40, 400))
    out = io.BytesIO()
    svmlight.dump_svmlight_file(X, y, out, zero_based=False, query_id=qid)
    path = tmp_path / "data.txt"
    path.write_bytes(out.getvalue())
    theirs, labels, queries = svmlight.load_svmlight_file(str(path), query_id=True, dtype=np.float32, n_features=30)
    ours = read_letor(path)
    np.testing.assert_array_equal(ours.features, theirs.toarray())
    np.testing.assert_array_equal(ours.lists.labels, labels)
    np.testing.assert_array_equal(np.asarray(ours.lists.qids)[ours.lists.query_of_item], queries)
