"""Known sets: what the catalog says of them, and that real copies hold what it says."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from rankbound import evaluate
from rankbound.cli.data import describe_data
from rankbound.data.catalog import DataFile, find_entry, known_sets
from rankbound.data.describe import describe
from rankbound.data.loading import load_fold, load_set
from rankbound.data.ratings import FORMATS
from rankbound.data.set_files import check, content_sha256, obtain, present_files
from rankbound.errors import ArgumentError, DataError

PAPERS = (
    "ml-latest-small ml-100k ml-1m ml-20m mq2007 mq2008 mq2007-agg mq2008-agg ohsumed td2003 td2004 mslr-web10k "
    "mslr-web30k citeulike-a epinions amazon-sports amazon-home all-age-faces istella-s yahoo-ltrc"
).split()


def test_every_set_of_the_papers_is_known() -> None:
    assert set(PAPERS) <= set(known_sets())


@pytest.mark.parametrize("entry", known_sets().values(), ids=known_sets())
def test_entries_are_complete(entry: object) -> None:
    from rankbound.data.catalog import Entry

    assert isinstance(entry, Entry)
    assert entry.kind in ("letor", "ratings", "faces", "trec", "runs")
    assert "\n" not in entry.missing
    assert entry.title
    assert entry.license
    assert entry.citation
    assert entry.origin.startswith("http")
    assert entry.download or entry.manual
    assert entry.form in ("auto", *FORMATS)
    assert any(file.data for file in entry.files)
    for file in (*entry.files, *entry.otherwise):
        assert ".." not in file.path
        for checksum in (file.sha256, file.partial):
            assert checksum is None or re.fullmatch("[0-9a-f]{64}", checksum)


def test_unknown_set_is_refused_with_near_names() -> None:
    with pytest.raises(ArgumentError, match="unknown data set 'mq208': did you mean mq2008"):
        find_entry("mq208")
    with pytest.raises(ArgumentError, match="unknown data set '': the known sets are ml-latest-small"):
        find_entry("")


def test_unknown_fold_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"fold must be one of the folds of mq2008 \(1, 2, 3, 4, 5\), got 6"):
        load_fold("mq2008", 6)
    with pytest.raises(ArgumentError, match=r"fold must be one of the folds of ml-1m \(none\), got 1"):
        load_fold("ml-1m", 1)


def test_what_only_people_may_download_is_explained(own_data: Path, own_cache: Path) -> None:
    (own_data / "mq2008").mkdir()
    (own_data / "mq2008" / "S1.txt").write_text("0 qid:1 1:0\n")
    with pytest.raises(DataError) as caught:
        obtain(find_entry("mq2008"))
    message = str(caught.value)
    assert "Put S2.txt, S3.txt, S4.txt, S5.txt (plain, .gz or .zst) into" in message
    assert f"{own_data / 'mq2008'} or {own_cache / 'data' / 'mq2008'}" in message


def test_own_folder_comes_before_the_cache(own_data: Path, own_cache: Path) -> None:
    for folder, rating in ((own_data, 1), (own_cache / "data", 5)):
        (folder / "ml-1m").mkdir(parents=True)
        (folder / "ml-1m" / "ratings.dat").write_text(f"1::2::{rating}::4\n")
    assert load_set("ml-1m").ratings.tolist() == [1]
    (own_data / "ml-1m" / "ratings.dat").unlink()
    assert load_set("ml-1m").ratings.tolist() == [5]


def test_files_that_stand_in_are_used(own_data: Path) -> None:
    (own_data / "ml-100k").mkdir()
    (own_data / "ml-100k" / "u.data").write_text("1\t2\t3\t4\n")
    assert len(load_set("ml-100k")) == 1
    (own_data / "ml-1m").mkdir()
    (own_data / "ml-1m" / "ratings.csv").write_text("user,item,rating\n1,2,3\n4,5,1\n")
    table = load_set("ml-1m")
    assert table.ratings.tolist() == [3, 1]
    assert table.timestamps is None


def test_trust_statements_of_a_table_are_read(own_data: Path) -> None:
    (own_data / "epinions-tang").mkdir()
    (own_data / "epinions-tang" / "trust.csv").write_text("truster,trustee\n7,3\n7,1\n3,7\n")
    table = load_set("epinions-tang-trust")
    assert (table.user_names.tolist(), table.item_names.tolist()) == ([3, 7], [1, 3, 7])
    assert list(zip(table.users.tolist(), table.items.tolist(), strict=True)) == [(0, 2), (1, 0), (1, 1)]


def test_judgments_and_runs_are_found_by_the_names_of_the_systems(own_data: Path) -> None:
    folder = own_data / "trec-covid-round1"
    (folder / "runs").mkdir(parents=True)
    (folder / "qrels.covid-round1.txt").write_text("1 0 a 2\n1 0 b 0\n2 0 a 1\n")
    with pytest.raises(DataError, match=r"runs: must contain runs, got an empty folder"):
        load_set("trec-covid-round1")
    for name, scores in (("good", "21"), ("bad.v2", "12")):
        lines = [f"1 Q0 {document} 1 {score} x\n" for document, score in zip("ab", scores, strict=True)]
        with gzip.open(folder / "runs" / f"{name}.gz", "wt") as stream:
            stream.writelines(lines)
    data = load_set("trec-covid-round1")
    assert repr(data) == "JudgedRuns(qrels='qrels.covid-round1.txt', runs=2)"
    means = evaluate(data.qrels, data.runs, ["RR"]).mean()
    assert {name: values["RR"] for name, values in means.items()} == {"bad.v2": 0.5, "good": 1.0}
    summary = describe(data)
    assert (summary["judgments"], summary["queries"], summary["runs"]) == (3, 2, 2)
    assert summary["labels"] == {"0": 1, "1": 1, "2": 1}


def test_the_checksum_of_a_folder_covers_names_and_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = content_sha256(tmp_path)
    (tmp_path / "a").unlink()
    with gzip.open(tmp_path / "a.gz", "wt") as stream:
        stream.write("x")
    assert content_sha256(tmp_path) == first
    (tmp_path / "a.gz").rename(tmp_path / "b.gz")
    assert content_sha256(tmp_path) != first


def test_incomplete_copies_are_described_as_such(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_data / "mq2007").mkdir()
    content = b"".join(b"%d qid:1 1:0.5\n" % label for label in (1, 0))
    for part in range(1, 6):
        (own_data / "mq2007" / f"S{part}.txt").write_bytes(content)
    notes = describe_data("mq2007")["notes"]
    assert "the copy on this machine has 10 of 69,623 rows (0%)" in notes
    assert find_entry("mq2007").missing in notes
    entry = replace(find_entry("mq2007"), files=(DataFile("S1.txt", "0" * 64, sha256(content).hexdigest()),))
    assert [state.state for state in check(entry)] == ["partial"]


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("mslr-web10k", "Fold3/train.txt", "Fold3/test.txt"),
        ("td2003", "Fold3/trainingset.txt", "Fold3/testset.txt"),
    ],
)
def test_given_folds_are_read_from_their_own_files(own_data: Path, name: str, train: str, test: str) -> None:
    entry = find_entry(name)
    for number in entry.fold_numbers:
        for index, path in enumerate(entry.folds.files_of(number).values()):  # type: ignore[union-attr]
            (own_data / name / path).parent.mkdir(parents=True, exist_ok=True)
            (own_data / name / path).write_text(f"1 qid:{number * 10 + index} 1:0.5\n")
    fold = load_fold(name, 3)
    assert [part.lists.qids.tolist() for part in (fold.train, fold.validation, fold.test)] == [[30], [31], [32]]
    assert load_set(name).lists.qids.tolist() == [10, 11, 12]


def test_a_missing_split_file_is_named(own_data: Path) -> None:
    (own_data / "citeulike-a").mkdir()
    (own_data / "citeulike-a" / "users.dat").write_text("1 5\n")
    with pytest.raises(DataError, match=r"citeulike-a: th_0/fold_1/train\.csv is not here; The split files are in"):
        load_fold("citeulike-a", 1)


def test_check_tells_wrong_from_unknown_and_missing(own_data: Path) -> None:
    (own_data / "mq2008").mkdir()
    (own_data / "mq2008" / "S1.txt").write_text("0 qid:1 1:0\n")
    (own_data / "ml-1m").mkdir()
    (own_data / "ml-1m" / "ratings.dat").write_text("1::2::3::4\n")
    assert [state.state for state in check(find_entry("mq2008"))] == ["wrong", *["missing"] * 4]
    assert [state.state for state in check(find_entry("ml-1m"))] == ["unknown", "missing"]


HERE = [
    "ml-latest-small",
    "ml-100k",
    "ml-1m",
    "mq2008",
    "mq2007-agg",
    "ohsumed",
    "ohsumed-letor2",
    "ohsumed-min",
    "mslr-sample",
    "lightgbm-lambdarank",
    "citeulike-a",
    "amazon-sports",
    "amazon-home",
    "epinions-tang",
    "epinions-tang-trust",
    "all-age-faces",
    "trec-covid-round1",
]


@pytest.mark.real_data
@pytest.mark.parametrize("name", HERE)
def test_real_sets_hold_what_the_catalog_says(data_dir: Path, name: str) -> None:
    entry = find_entry(name)
    summary = describe(load_set(name))
    assert entry.counts
    assert {what: summary[what] for what in entry.counts} == dict(entry.counts)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "labels", "sizes"),
    [
        ("mq2007", {"0": 43_857, "1": 11_994, "2": 3_284}, (6, 127)),
        ("ohsumed-letor2", {"0": 11_303, "1": 2_585, "2": 2_252}, (35, 320)),
        ("mq2008", {"0": 12_279, "1": 2_001, "2": 931}, (5, 121)),
        ("mq2007-agg", {"0": 51_632, "1": 14_128, "2": 3_863}, None),
        ("ohsumed", {"0": 11_303, "1": 2_585, "2": 2_252}, (35, 320)),
        ("mslr-sample", {"0": 5_639, "1": 2_900, "2": 1_244, "3": 153, "4": 64}, (18, 308)),
        ("lightgbm-lambdarank", {"0": 851, "1": 1_467, "2": 1_110, "3": 266, "4": 79}, None),
    ],
)
def test_real_sets_have_the_known_labels(
    data_dir: Path, name: str, labels: dict[str, int], sizes: tuple[int, int] | None
) -> None:
    summary = describe(load_set(name))
    assert summary["labels"] == labels
    if sizes is not None:
        assert (summary["list_sizes"]["min"], summary["list_sizes"]["max"]) == sizes


@pytest.mark.real_data
def test_mq2007_agg_misses_about_a_third_of_its_values(data_dir: Path) -> None:
    assert round(describe(load_set("mq2007-agg"))["unknown_values"], 3) == 0.348


@pytest.mark.real_data
def test_trec_evals_files_load_by_name(data_dir: Path) -> None:
    lists = load_set("trec-eval-test")
    assert len(lists) == find_entry("trec-eval-test").counts["queries"]


@pytest.mark.real_data
@pytest.mark.parametrize("number", range(1, 6))
def test_folds_of_letor_2_are_a_partition_of_the_queries(data_dir: Path, number: int) -> None:
    fold = load_fold("ohsumed-letor2", number)
    queries = [set(part.lists.qids.tolist()) for part in (fold.train, fold.validation, fold.test)]
    assert sum(map(len, queries)) == len(set.union(*queries)) == find_entry("ohsumed-letor2").counts["queries"]


@pytest.mark.real_data
def test_mq2007_is_known_to_be_incomplete(data_dir: Path) -> None:
    assert {state.state for state in check(find_entry("mq2007"))} == {"partial"}
    rows = [len(part.lists.labels) for part in (load_fold("mq2007", 1).validation, load_fold("mq2007", 1).test)]
    assert rows == [11_736, 11_585]


@pytest.mark.real_data
@pytest.mark.slow
def test_faces_in_color_equal_the_gray_ones(data_dir: Path) -> None:
    color, gray = load_set("all-age-faces-color"), load_set("all-age-faces")
    assert color.images.shape == (find_entry("all-age-faces-color").counts["images"], 112, 112, 3)
    order = np.argsort(gray.ids)
    assert color.ids.tolist() == gray.ids[order].tolist()
    assert color.ages.tolist() == gray.ages[order].tolist()
    assert color.train.tolist() == gray.train[order].tolist()
    lightness = [images.reshape(len(images), -1).mean(axis=1) for images in (color.images, gray.images[order])]
    assert np.corrcoef(*lightness)[0, 1] > 0.98


@pytest.mark.real_data
@pytest.mark.parametrize("name", [*HERE, "all-age-faces-color", "trec-eval-test"])
def test_real_files_have_their_checksums(data_dir: Path, name: str) -> None:
    entry = find_entry(name)
    assert present_files(entry) is not None
    states = {state.name: state.state for state in check(entry)}
    wanted = {file.path for file in (*entry.files, *entry.otherwise) if file.sha256 is not None}
    assert wanted
    assert {path for path, state in states.items() if state == "ok"} == wanted
