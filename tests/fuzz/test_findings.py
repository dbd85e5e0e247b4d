"""What fuzzing found once, each as the smallest input that showed it, and what is said about it now."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import pickle
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import zstandard

from rankbound.checkpoints import Checkpoints, _digest
from rankbound.cli.train import _read_config
from rankbound.data import archives, text_chunks
from rankbound.data.archives import unpack
from rankbound.data.array_cache import _loaded
from rankbound.data.beir import read_beir
from rankbound.data.faces import read_faces
from rankbound.data.frames import lists_from_frame, read_frame
from rankbound.data.interactions import Interactions
from rankbound.data.judged import DuplicateError
from rankbound.data.letor import LetorData, read_groups, read_letor
from rankbound.data.ratings import read_ratings
from rankbound.data.text_chunks import line_chunks
from rankbound.data.trec import read_qrels
from rankbound.errors import DataError, FileFormatError, MeasureError, RankboundError
from rankbound.evaluation import evaluate
from rankbound.evaluation.score_tables import contrasts
from rankbound.io import read_bytes
from rankbound.measures.measure import parse_measure
from rankbound.models.tree_text import check_trees, trees_alone
from rankbound.studies.results import read_published
from rankbound.studies.store import open_store
from rankbound.studies.study_files import load_study

DIGITS = "9" * (sys.get_int_max_str_digits() + 1)  # Python refuses to make a number of these
NESTED = "[" * 100_000


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_message_does_not_repeat_endless_input(tmp_path: Path) -> None:
    path = written(tmp_path / "qrels", f"q 0 d {'x' * 100_000}\n")
    with pytest.raises(FileFormatError, match="label must be an integer, got 'xxx") as caught:
        read_qrels(path)
    assert len(str(caught.value)) == 2_000
    assert str(RankboundError("short")) == "short"


# ---- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [2**63, -(2**63) - 1, 10**40])
def test_a_label_beyond_64_bits(label: int, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r":1: label must be below 2\^63, got"):
        read_qrels(written(tmp_path / "qrels", f"q 0 d {label}\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"1 qid:{DIGITS} 1:1", r":1: qid must be an integer below 2\^63"),
        (f"1 qid:1 {DIGITS}:1", ":1: a feature index must be an integer from 1 to 65536"),
        ("1 qid:1 1:1 # docid = " + "x" * 256, ":1: a document's id must have at most 255 characters, got 'xxx"),
    ],
)
def test_numbers_and_ids_without_end_in_letor(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=message):
        read_letor(written(tmp_path / "train", line + "\n"))


def test_a_group_size_without_end(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=":2: a group size must be a positive integer, got '999"):
        read_groups(written(tmp_path / "train.query", f"1\n{DIGITS}\n"))


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_chunks, "_LONGEST", 50)
    path = written(tmp_path / "text", b"short\n" + b"x" * 100)
    with pytest.raises(FileFormatError, match=":2: a line must be shorter than 0 MiB, got b'xxx"):
        list(line_chunks(path, 16))


def test_a_name_with_a_nul(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: a file name has no NUL character"):
        read_bytes(tmp_path / "a\0b")


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("amazon", "0000000078\n", ":1: expected user, item, rating and maybe a timestamp, got '0000000078'"),
        ("amazon", '1,7,"', """:1: a field in quotes must end with a quote, got '1,7,"'"""),
        ("u.data", "1\t2\t1e39\t4\n", r":1: the rating must be below 3\.4e\+38, got '1e39'"),
        ("u.data", "1\t2\t1\t1e19\n", r":1: the timestamp must be below 9\.22e\+18, got '1e19'"),
        ("u.data", f"1\t{'x' * 256}\t1\t1\n", ":1: the item must have at most 255 bytes, got 'xxx"),
        ("sequences", f"u {'x' * 256}\n", "a name must have at most 255 bytes, got 'xxx"),
    ],
)
def test_ratings_that_were_taken_for_others(form: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_ratings(written(tmp_path / "ratings", text), form)


def test_names_in_digits_of_other_scripts_are_text(tmp_path: Path) -> None:
    read = read_ratings(written(tmp_path / "ratings", "3\t8٢00\n"))
    assert read.item_names.tolist() == ["8٢00"]
    assert read.user_names.tolist() == [3]


def test_json_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    written(tmp_path / "qrels" / "test.tsv", "q\td\t1\n")
    written(tmp_path / "queries.jsonl", NESTED)
    with pytest.raises(FileFormatError, match=r"queries\.jsonl:1: a line must be a JSON object with _id, got max"):
        read_beir(tmp_path)


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    written(tmp_path / "qrels" / "test.tsv", "q\td\t1\n")
    written(tmp_path / "queries.jsonl", '{"_id": "q", "text": "\\ud800"}')
    with pytest.raises(FileFormatError, match=r"queries\.jsonl:1: a line must be a JSON .*surrogates"):
        read_beir(tmp_path)


def test_much_in_little_zstandard_is_read_in_pieces(tmp_path: Path) -> None:
    packed = zstandard.ZstdCompressor(level=19).compress(b"0" * (64 << 20))  # 6 KB that were copied a thousand times
    whole = read_bytes(written(tmp_path / "zeros.zst", packed))
    assert len(whole) == 64 << 20
    assert whole.count(b"0") == 64 << 20


@pytest.mark.parametrize(
    "error", [FileFormatError("run.txt", 3, "expected 6 fields", "got 5"), DuplicateError("run", "document 'a' twice")]
)
def test_errors_come_back_from_a_worker_process(error: DataError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


# ---- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ERR(max_rel=1e308)", "max_rel of ERR must be a positive number up to 1023, got 1000"),
        ("AP(rel=1e999)", r"rel of AP must be a positive number up to 2\^31, got inf"),
        ("UL2(" * 400 + "AP" + ")" * 400, r"a measure's name has at most 200 characters, got 'UL2\("),
    ],
)
def test_measures_that_cannot_be_computed(name: str, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        parse_measure(name)


TABLE = 'title = "t"\n[[tables]]\ndata = {{ letor = "{data}" }}\nmodel = "AdaRank"\nmeasures = "AP"\n{more}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a = {NESTED}", "is not valid TOML: maximum recursion depth"),
        (TABLE.format(data="x" * 300, more=""), r"tables\[0\]\.data\.letor: must be a path, got 'xxx"),
        (TABLE.format(data="a", more="folds = 0"), r"tables\[0\]\.folds"),
        (
            TABLE.format(data="a", more="seeds = [" + "1," * 2000 + "]\nfolds = 1000"),
            r"tables\[0\]\.grid: a table must have at most 1,000,000 trials, got more with AdaRank",
        ),
        ('title = "t"\ntrials_of = "mine"', "trials_of: must be a study with tables of its own, got 'mine'"),
        ('title = "t"\ntrials_of = "../mine"', r"trials_of: must be the name of a study, got '\.\./mine'"),
    ],
)
def test_studies_that_never_end(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.toml", text)
    with pytest.raises(RankboundError, match=message):
        load_study(str(path))


def test_options_nested_without_end(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not TOML: maximum recursion depth"):
        _read_config(str(written(tmp_path / "train.toml", f"a = {NESTED}")))
    with pytest.raises(DataError, match=r"absent\.toml: cannot be read: No such file"):
        _read_config(str(tmp_path / "absent.toml"))


@pytest.mark.parametrize("text", ["measure,published\nAP,much\n", 'measure,published\n"AP,1\n', ""])
def test_published_numbers_that_are_none(text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "s.published.csv", text)
    with pytest.raises(DataError, match=r"s\.published\.csv: cannot be read"):
        read_published(path, [])


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_columns_that_numpy_has_no_type_for(tmp_path: Path) -> None:
    path = written(tmp_path / "run.csv", f"qid,docid,label,score\n{2**70},1,true,{2**70}\n{2**70},2,false,1\n")
    lists = lists_from_frame(path)
    assert (lists.qids.tolist(), lists.labels.tolist(), lists.scores.tolist()) == ([str(2**70)], [1, 0], [2.0**70, 1.0])
    nested = pl.DataFrame({"qid": [[1]], "label": [1]})
    with pytest.raises(DataError, match=r"column 'qid' must hold numbers or text, got List"):
        lists_from_frame(nested)


def test_empty_queries_in_a_table(tmp_path: Path) -> None:
    rows = pl.DataFrame({"qid": [1, None, None], "docid": [1, 2, 3], "label": [1, 0, 1], "score": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="column 'qid' must have no empty entries"):
        evaluate(rows.drop("score"), rows.drop("label"), "AP")
    rows.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: column 'qid' must be filled in every row, got 2 empty"):
        evaluate(tmp_path / "t.parquet", measures="AP")


def test_dates_are_names_of_queries_like_others(tmp_path: Path) -> None:
    days = pl.DataFrame({"qid": ["2020-01-01", "2020-01-02", "2020-01-02"]}).select(pl.col("qid").str.to_date())
    days.with_columns(label=pl.Series([1, 0, 1]), score=pl.Series([1.0, 2.0, 3.0])).write_parquet(
        tmp_path / "t.parquet"
    )
    result = evaluate(tmp_path / "t.parquet", measures="AP")
    assert result.query_ids.tolist() == ["2020-01-01", "2020-01-02"]


@pytest.mark.full("takes seconds")
def test_a_panic_of_polars_is_a_refusal(tmp_path: Path) -> None:
    out = io.BytesIO()
    pl.DataFrame({"qid": [1, 2], "label": [1, 0], "score": [1.0, 2.0]}).write_parquet(out, compression="uncompressed")
    whole = out.getvalue()
    path = tmp_path / "t.parquet"
    for at in range(0, len(whole), 3):  # every part of header, pages and footer
        written(path, whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read_frame(path)
            evaluate(path, measures="AP")
            read_ratings(path)
        except RankboundError as error:
            assert str(error)  # noqa: PT017 - any refusal will do


# ---- archives and images ---------------------------------------------------------------------------------------------


def test_a_member_that_comes_twice_is_one_file(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as box:
        for content in (b"first", b"last"):
            member = tarfile.TarInfo("a.txt")
            member.size = len(content)
            box.addfile(member, io.BytesIO(content))
    (file,) = unpack(tmp_path / "a.tar", tmp_path / "out")
    assert file.read_bytes() == b"last"


def test_archives_that_zipfile_cannot_read_are_damaged(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as box:
        box.writestr("a.txt", "abc")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + flags] |= 1  # says that it is encrypted
    with pytest.raises(DataError, match=r"a\.zip: is damaged: .*encrypted"):
        unpack(written(tmp_path / "a.zip", bytes(content)), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_archive_that_would_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_FREE_BYTES", 10_000)
    path = written(tmp_path / "bomb.txt.bz2", bz2.compress(b"0" * 1_000_000))
    with pytest.raises(DataError, match=r"bomb\.txt\.bz2: must not unpack to more than 200 times its size"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("damage", ["member", "kind", "ages", "shape"])
def test_arrays_of_faces_that_cannot_be_used(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "faces.npz"
    ages = {"ages": np.array([1.0, np.nan]), "shape": np.array(3)}.get(damage, np.array([1, 2]))
    np.savez(path, images=np.zeros((2, 3, 3), np.uint8), age=ages)
    if damage == "member":  # a checksum of the zip is wrong
        written(path, path.read_bytes().replace(b"\x93NUMPY", b"\x93NUMPX"))
    if damage == "kind":  # a single array under the name of an archive
        out = io.BytesIO()
        np.save(out, np.zeros(3))
        written(path, out.getvalue())
    with pytest.raises(DataError, match=r"faces\.npz: (cannot be read|age must be 1-D with numbers from 0 to 999)"):
        read_faces(path)


def test_images_of_other_kinds_and_sizes(tmp_path: Path) -> None:
    image_library = pytest.importorskip("PIL.Image")
    small = image_library.new("L", (4, 4))
    small.save(tmp_path / "00001A10.jpg", "GIF")  # pillow would go by its content, and has readers that run programs
    with pytest.raises(DataError, match=r"00001A10\.jpg is not an image that can be read"):
        read_faces(tmp_path)
    out = io.BytesIO()
    small.save(out, "PNG")
    huge = bytearray(out.getvalue())
    huge[16:24] = (60_000).to_bytes(4, "big") * 2
    import zlib

    huge[29:33] = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    written(tmp_path / "00001A10.jpg", bytes(huge))
    with pytest.raises(DataError, match=r"00001A10\.jpg is not an image that can be read: .*pixels"):
        read_faces(tmp_path)


# ---- our own files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record", [{}, {"training": {}}, {"training": 1, "metadata": {}}, {"training": {}, "metadata": 1}, []]
)
def test_a_checkpoint_without_its_parts(record: object, tmp_path: Path) -> None:
    Checkpoints(tmp_path, {}).save(1, {"a": np.zeros(2)}, {})
    (step,) = tmp_path.iterdir()
    content = (step / "state.safetensors").read_bytes()
    sealed = record | {"sha256": _digest(record, content)} if isinstance(record, dict) else record
    written(step / "state.json", json.dumps(sealed))
    with pytest.raises(DataError, match="this checkpoint cannot be read"):
        Checkpoints(tmp_path, {}).load()


def test_a_database_that_asks_for_all_memory(tmp_path: Path) -> None:
    """A record whose length is larger than any memory: Python has a MemoryError for it, and no error of SQLite."""
    content = bytearray(5165)
    parts = {0: b"SQLite format 3", 16: b"\2", 21: b"@  ", 100: b"\5", 104: b"\1", 112: b"\1\xfb", 510: b"\6"}
    parts |= {2560: b"\r", 2564: b"\3", 2568: b"\1v", 2934: b"\xff" * 14, 2949: b"l"}
    for place, part in parts.items():
        content[place : place + len(part)] = part
    written(tmp_path / "trials.sqlite", bytes(content))
    with pytest.raises(DataError, match="is damaged or cannot be used: it claims more memory than is available"):
        open_store(tmp_path)


def test_columns_in_the_cache_that_do_not_go_together(tmp_path: Path) -> None:
    written(tmp_path / "notes.json", "[]")
    columns = {"users": np.array([0, 5], np.int32), "items": np.array([0, 0], np.int32)}
    columns |= {"user_names": np.array(["a"]), "item_names": np.array(["x"])}
    for name, column in columns.items():
        np.save(tmp_path / f"{name}.npy", column)
    with pytest.raises(ValueError, match="the codes do not fit the names"):
        _loaded(tmp_path, Interactions)
    np.save(tmp_path / "users.npy", np.array([0, 0, 0], np.int32))
    with pytest.raises(ValueError, match="the columns do not fit each other"):
        _loaded(tmp_path, Interactions)
    for file in tmp_path.glob("*.npy"):
        file.unlink()
    for name, column in {"labels": np.ones(1, int), "offsets": np.array([0, 1]), "features": np.array([["a"]])}.items():
        np.save(tmp_path / f"{name}.npy", column)
    with pytest.raises(ValueError, match="the features have another type"):
        _loaded(tmp_path, LetorData)


@pytest.fixture(scope="module")
def trees() -> str:
    """Two small trees over three features, as LightGBM writes them."""
    lambdamart = pytest.importorskip("rankbound.models.rankers.trees").LambdaMART
    X = np.random.default_rng(0).random((24, 3))
    model = lambdamart(n_estimators=2, min_child_samples=1, num_leaves=4, n_jobs=1)
    text: str = (
        model.fit(X, (X[:, 0] * 3).astype(int), qid=np.repeat(np.arange(4), 6))._fitted_state().texts["trees.txt"]
    )
    check_trees(text, 3)
    return text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("left_child=1 ", "left_child=0 ", "tree 0: left_child of node 0 must be a later node or a leaf, got 0"),
        ("left_child=1 ", "left_child=9 ", "tree 0: left_child of node 0 must be a later node or a leaf, got 9"),
        ("split_feature=0 ", "split_feature=7 ", "tree 0: split_feature must be below 3"),
        ("num_leaves=4", "num_leaves=5", "must match num_leaves=5"),
        ("internal_weight=", "internal_weight=1 ", "tree 0: internal_weight must match num_leaves=4"),
        ("shrinkage=0.1", "shrinkage=0..", "tree 0: a line must be one of"),
        ("num_cat=0", "num_cat=1", "tree 0: cat_boundaries must divide cat_threshold into num_cat=1 sets"),
        ("num_cat=0", "num_cat=-1", "tree 0: a line must be one of num_leaves"),
        ("tree_sizes=", "tree_sizes=9", "must be at the position of tree_sizes|is missing|a line must be"),
        ("max_feature_idx=2", "max_feature_idx=9", "the trees must be over 3 features, got max_feature_idx=9"),
        ("end of trees", "end of tree", "the last tree must be followed by 'end of trees'"),
        ("tree\n", "", "must begin with the line 'tree'"),
    ],
)
def test_trees_that_point_out_of_themselves(old: str, new: str, message: str, trees: str) -> None:
    assert old in trees
    with pytest.raises(DataError, match=message):
        check_trees(trees.replace(old, new, 1), 3)


def test_parameters_of_the_training_do_not_reach_lightgbm(trees: str) -> None:
    assert trees.endswith("\nend of trees\n")
    assert trees_alone(trees + "\nparameters:\n[no_such: 1]\n\nend of parameters\n") == trees


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rankers = pytest.importorskip("rankbound.models.rankers.adarank")
    X = np.random.default_rng(0).random((12, 3))
    rankers.AdaRank(n_estimators=2).fit(X, (X[:, 0] > 0.5).astype(int), qid=np.repeat([0, 1], 6)).save(tmp_path / "m")
    return tmp_path / "m"


def resealed(folder: Path, weights: bytes | None = None, **changes: object) -> Path:
    """The model with another index or other weights, as someone would write it who makes the checksums fit."""
    index = json.loads((folder / "model.json").read_bytes()) | changes
    del index["sha256"]
    if weights is not None:
        written(folder / "weights.safetensors", weights)
        index["files"]["weights.safetensors"] = hashlib.sha256(weights).hexdigest()
    index = {key: value for key, value in index.items() if value != "left out"}
    index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    written(folder / "model.json", json.dumps(index))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_features_in": 4}, "cannot be loaded as AdaRank"),  # three weights
        ({"n_features_in": 10**12}, "n_features_in must be from 1 to"),
        ({"n_features_in": "left out"}, "cannot be loaded as AdaRank by rankbound .*: KeyError"),
        ({"feature_names": ["a"]}, "equal the number of feature_names, got 3"),
        ({"files": []}, "class must be one of"),
        ({"class": ["AdaRank"]}, "class must be one of"),
        ({"params": [1]}, "cannot be loaded as AdaRank"),
        ({"params": {"measure": {"object": ["os", "system"], "options": {}}}}, "must be a loss or a measure"),
        ({"n_queries": None}, "cannot be loaded as AdaRank"),
        ({"params": {"measure": {"object": ["rankbound.measures", "parse_measure"], "options": {}}}}, "has no 'parse"),
    ],
)
def test_a_model_with_inconsistent_parts(changes: dict[str, object], message: str, model: Path) -> None:
    from rankbound.models.saving import load_ranker

    with pytest.raises(DataError, match=message):
        load_ranker(resealed(model, **changes))


@pytest.mark.parametrize(
    "weights", [b"", b"\xff" * 20, (2**60).to_bytes(8, "little") + b"{}", b"\x02" + b"\0" * 7 + b"[]"]
)
def test_a_model_with_weights_that_are_none(weights: bytes, model: Path) -> None:
    from rankbound.models.saving import load_ranker

    with pytest.raises(DataError, match=r"cannot be loaded as AdaRank by rankbound .*: SafetensorError"):
        load_ranker(resealed(model, weights))


def test_a_model_that_says_it_is_larger_than_its_weights(tmp_path: Path) -> None:
    """A network is made as large as the parameters say: what they say is compared with the arrays before that."""
    from rankbound.models.saving import load_ranker

    neural = pytest.importorskip("rankbound.models.rankers.dense")
    X = np.random.default_rng(0).random((12, 3))
    ranker = neural.MLPRanker(hidden=(2,), epochs=1).fit(X, (X[:, 0] > 0.5).astype(int), qid=np.repeat([0, 1], 6))
    ranker.save(tmp_path / "m")
    params = json.loads((tmp_path / "m" / "model.json").read_bytes())["params"] | {"hidden": 10**12}
    with pytest.raises(DataError, match="layers of 1000000000000 units do not fit arrays of at most 3"):
        load_ranker(resealed(tmp_path / "m", params=params))


def test_an_index_nested_without_end(model: Path) -> None:
    from rankbound.models.saving import load_ranker

    written(model / "model.json", NESTED)
    with pytest.raises(DataError, match="is damaged, not JSON: maximum recursion depth"):
        load_ranker(model)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("items", 100_000_000, r"column 'items' of a score table must hold numbers up to 10,000,000, got 100,000,000"),
        ("system", 7, "column 'system' of a score table must hold text, got Int"),
        ("*", "x", r"columns of a score table must not have names like patterns, got '\*'"),
        ("^a$", "x", r"columns of a score table must not have names like patterns, got '\^a\$'"),
    ],
)
def test_score_tables_that_took_forever_or_were_misread(column: str, value: object, message: str) -> None:
    table = pl.DataFrame(
        {"data": "x", "variant": "", "system": ["a", "b"], "fold": 0, "seed": 0, "qid": "q", "items": 5, "relevant": 1}
        | {"nDCG": [0.5, 1.0]}
    )
    assert len(contrasts(table)) == 1
    with pytest.raises(DataError, match=message):
        contrasts(table.with_columns(pl.lit(value).alias(column)))
