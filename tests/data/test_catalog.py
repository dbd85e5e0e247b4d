"""Known sets: what the catalog says of them, and that real copies hold what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankbound.data.catalog import find_entry, known_sets
from rankbound.data.describe import describe
from rankbound.data.loading import load_fold, load_set
from rankbound.data.ratings import FORMATS
from rankbound.data.set_files import check, obtain, present_files
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
    assert entry.kind in ("letor", "ratings", "faces", "trec")
    assert entry.title
    assert entry.license
    assert entry.citation
    assert entry.origin.startswith("http")
    assert entry.download or entry.manual
    assert entry.form in ("auto", *FORMATS)
    assert any(file.data for file in entry.files)
    for file in (*entry.files, *entry.otherwise):
        assert ".." not in file.path
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


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
        for index, path in enumerate(entry.folds.of(number).values()):  # type: ignore[union-attr]
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
    assert [state.state for state in check(find_entry("ml-1m"))] == ["unknown"]


HERE = [
    "ml-latest-small",
    "ml-100k",
    "mq2008",
    "mq2007-agg",
    "ohsumed",
    "ohsumed-min",
    "mslr-sample",
    "lightgbm-lambdarank",
    "citeulike-a",
    "amazon-sports",
    "amazon-home",
    "all-age-faces",
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
@pytest.mark.parametrize("name", [*HERE, "trec-eval-test"])
def test_real_files_have_their_checksums(data_dir: Path, name: str) -> None:
    entry = find_entry(name)
    assert present_files(entry) is not None
    states = {state.name: state.state for state in check(entry)}
    wanted = {file.path for file in (*entry.files, *entry.otherwise) if file.sha256 is not None}
    assert wanted
    assert {path for path, state in states.items() if state == "ok"} == wanted
