"""The data command: one JSON object, or a table; and exit code 2 with one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankbound.cli.main import run


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["data", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


@pytest.fixture
def letor(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text("2 qid:1 1:0.5 2:1\n0 qid:2 1:1 2:0\n0 qid:1 1:0 2:0\n0 qid:2 1:3 2:3\n")
    return path


def test_list_names_all_sets_and_says_which_are_here(capsys: pytest.CaptureFixture[str], own_data: Path) -> None:
    (own_data / "ml-1m").mkdir()
    (own_data / "ml-1m" / "ratings.dat").write_text("1::2::3::4\n")
    sets = {entry["name"]: entry for entry in run_json(capsys, "list")["sets"]}
    assert sets["ml-1m"]["here"]
    assert not sets["ml-20m"]["here"]
    assert sets["mq2008"]["folds"] == [1, 2, 3, 4, 5]
    assert run(["data", "list"]) == 0
    assert "MovieLens 1M" in capsys.readouterr().out


def test_describe_a_letor_file(capsys: pytest.CaptureFixture[str], letor: Path) -> None:
    summary = run_json(capsys, "describe", str(letor))
    assert (summary["rows"], summary["queries"], summary["features"], summary["labels"]) == (4, 2, 2, {"0": 3, "2": 1})
    assert summary["list_sizes"]["histogram"] == [{"from": 2, "to": 3, "count": 2}]
    assert summary["difficulty"]["no_choice_queries"] == 1
    expected = (1 + 0.6309297535714575) / 2  # one relevant item of two: rank 1 or rank 2
    assert summary["difficulty"]["mean_expected"] == pytest.approx(expected)
    assert "not adjacent" in summary["notes"][0]
    assert run(["data", "describe", str(letor)]) == 0
    shown = capsys.readouterr().out
    assert "queries without a choice 50.0%" in shown
    assert "Note: the rows of 2 queries" in shown


def test_describe_draws_no_empty_bars(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "no-choice.txt"
    path.write_text("1 qid:1 1:0.5\n1 qid:1 1:0.25\n0 qid:2 1:0.5\n")
    assert run(["data", "describe", str(path)]) == 0
    out = capsys.readouterr().out
    assert "queries without a choice 100.0%" in out
    assert "0.0-0.1" not in out


def test_describe_ratings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n1,2,3.5,4\n1,3,4,5\n2,2,3.5,6\n")
    summary = run_json(capsys, "describe", str(path))
    assert (summary["users"], summary["items"], summary["interactions"]) == (2, 2, 3)
    assert summary["labels"] == {"3.5": 2, "4": 1}


QRELS = "# judged twice\nq1 0 a 1\nq1 0 b 0\nq2 0 b 2\nq3 0 a -1\n"
RUN = "q1 Q0 a 1 0.9 t\nq1 Q0 b 2 0.8 t\nq2 Q0 c 1 7 t\n"


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_describe_trec_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, separator: str) -> None:
    path = tmp_path / "judged.txt"
    path.write_text(QRELS.replace(" ", separator))
    summary = run_json(capsys, "describe", str(path))
    keys = ("kind", "queries", "documents", "rows", "labels", "notes")
    assert [summary[key] for key in keys] == ["qrels", 3, 2, 4, {"-1": 1, "0": 1, "1": 1, "2": 1}, []]
    assert summary["list_sizes"]["max"] == 2
    assert summary["difficulty"]["no_choice_queries"] == 2  # those with a single document
    path.write_text(RUN.replace(" ", separator))
    summary = run_json(capsys, "describe", str(path))
    assert [summary[key] for key in keys] == ["run", 2, 3, 3, {}, []]
    assert run(["data", "describe", str(path)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["documents", "3"] in shown
    assert not any("users" in line for line in shown)


def test_describe_refuses_damaged_trec_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "judged.txt"
    path.write_text(QRELS + "q4  a 1\n")
    assert "judged.txt:6: expected 4 fields (qid iteration docid label), got 3" in refused(
        capsys, "describe", str(path)
    )
    path.write_text(QRELS + "q4 0 a 1.5\n")
    assert "judged.txt:6: label must be an integer, got '1.5'" in refused(capsys, "describe", str(path))


@pytest.mark.parametrize(
    ("text", "kind", "note"),
    [
        ("1 4.5 xx 1\n2 1 yy 0\n", "qrels", "read as TREC qrels (query, iteration, document, label); "),
        ("u1 7 8 9\n", "qrels", "read as TREC qrels (query, iteration, document, label); "),
        ("u1 7 8 9 0 1\n", "run", "read as a TREC run (query, Q0, document, rank, score, tag); "),
        ("u1 5 6 7\nu2 8 9 10\n", "ratings", "read as interactions; TREC files can look the same, "),
        ("u1 5 6 7\nu2 8 9\n", "ratings", None),
        ("1\t2\t3\t881250949\n1\t4\t3\t881250949\n", "ratings", None),
        ("1::2::3::4\n", "ratings", None),
    ],
)
def test_describe_says_how_an_ambiguous_file_was_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, kind: str, note: str | None
) -> None:
    path = tmp_path / "file.txt"
    path.write_text(text)
    summary = run_json(capsys, "describe", str(path))
    assert summary["kind"] == kind
    assert [entry[: len(note or "")] for entry in summary["notes"]] == ([] if note is None else [note])


def test_describe_faces_and_beir(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "f.npz", images=np.zeros((3, 4, 5), np.uint8), age=np.array([2, 2, 80]))
    summary = run_json(capsys, "describe", str(tmp_path / "f.npz"))
    assert (summary["images"], summary["features"], summary["labels"]) == (3, 20, {"2": 2, "80": 1})
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": ""}\n')
    (folder / "corpus.jsonl").write_text('{"_id": "d", "text": ""}\n')
    summary = run_json(capsys, "describe", str(folder))
    assert (summary["queries"], summary["rows"], summary["documents"]) == (1, 1, 1)


def test_describe_draws(capsys: pytest.CaptureFixture[str], letor: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    out = tmp_path / "plot.svg"
    run_json(capsys, "describe", str(letor), "--plot", str(out))
    assert "expected nDCG" in out.read_text()


def test_get_finds_what_is_here(capsys: pytest.CaptureFixture[str], own_data: Path) -> None:
    (own_data / "ml-1m").mkdir()
    file = own_data / "ml-1m" / "ratings.dat"
    file.write_text("1::2::3::4\n")
    assert run_json(capsys, "get", "ml-1m") == {"name": "ml-1m", "downloaded": False, "files": [str(file)]}
    assert run(["data", "get", "ml-1m"]) == 0
    assert "Cite: Harper" in capsys.readouterr().out


def test_verify_prints_all_files_and_fails_for_a_wrong_one(capsys: pytest.CaptureFixture[str], own_data: Path) -> None:
    assert run_json(capsys, "verify") == {"files": []}
    (own_data / "mq2008").mkdir()
    for number in range(1, 6):
        (own_data / "mq2008" / f"S{number}.txt").write_text("0 qid:1 1:0\n")
    assert run(["data", "verify", "--json"]) == 2
    captured = capsys.readouterr()
    assert [file["state"] for file in json.loads(captured.out)["files"]] == ["wrong"] * 5
    assert "S1.txt: wrong checksum, expected cbd42504" in captured.err
    assert "ml-1m: is not here" in refused(capsys, "verify", "ml-1m")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("get", "mq208"), "rankbound: unknown data set 'mq208': did you mean mq2008"),
        (("describe", "mq208"), "rankbound: unknown data set 'mq208'"),
        (("describe", "absent/file.txt"), "absent/file.txt: no such file, and no data set of that name"),
        (("describe", "{letor.parent}"), "a folder must contain a BEIR corpus or images"),
        (("verify", "nonsense"), "rankbound: unknown data set 'nonsense'"),
        (("get", "mq2007"), "Put S1.txt, S2.txt, S3.txt, S4.txt, S5.txt (plain, .gz or .zst) into"),
        (("describe", "{letor}", "--plot", "x.gif"), "--plot must be an .html, .svg, .png or .pdf file, got 'x.gif'"),
    ],
)
def test_bad_requests_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], own_data: Path, letor: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(capsys, *(part.format(letor=letor) for part in arguments))


def test_a_bad_line_is_named_with_its_number(capsys: pytest.CaptureFixture[str], letor: Path) -> None:
    letor.write_text(letor.read_text() + "1 qid:9 0:1\n")
    message = refused(capsys, "describe", str(letor))
    assert message == f"rankbound: {letor}:5: a feature index must be an integer from 1 to 65536, got '0:1'\n"
