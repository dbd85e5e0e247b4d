"""Whatever is wrong with the input: one line on stderr, exit code 2, no traceback, no file."""

from __future__ import annotations

import os

import pytest

FILES = {
    "malformed": "q1 Q0 a 1 3.0 t\nq1 Q0 b 2\n",
    "twice": "q1 Q0 a 1 3.0 t\nq1 Q0 a 2 2.0 t\n",
    "nan": "q1 Q0 a 1 nan t\n",
    "infinite": "q1 Q0 a 1 3.0 t\nq1 Q0 b 1 -inf t\n",
    "words": "q1 0 a good\n",
    "empty": "",
    "elsewhere": "x9 Q0 a 1 3.0 t\n",
    "binary": b"q1 Q0 \xff\xfe 1 3.0 t\n",
    "broken.gz": b"\x1f\x8b\x08\x00garbage",
    "some.pairs": "q1 a\n",
    "three.fields": "q1 a b\n",
    "labels.csv": "qid,label\nq1,1\n",
    "bare.csv": "qid,docid\nq1,a\n",
    "words.csv": "qid,label\nq1,good\n",
}

EVALUATE = [
    ("qrels malformed", "malformed:2: expected 6 fields"),
    ("qrels twice", "twice:2: a document must occur once per query, got 'a' again in query 'q1'"),
    ("qrels nan", "nan:1: score must be finite, got 'nan'"),
    ("qrels infinite", "infinite:2: score must be finite, got '-inf'"),
    ("words run", "words:1: label must be an integer, got 'good'"),
    ("empty run", "empty: expected lines of 4 fields"),
    ("qrels empty", "empty: expected lines of 6 fields"),
    ("qrels elsewhere", "elsewhere: qrels and run have no query in common"),
    ("qrels binary", "binary:1: text must be UTF-8"),
    ("qrels broken.gz", "broken.gz: cannot be read"),
    ("qrels bare.csv", "no column for score"),
    ("qrels absent", "absent: cannot be read: No such file"),
    ("absent.csv run", "absent.csv: cannot be read: No such file or directory"),
    ("qrels folder", "folder: a folder of results must have rankings per query"),
    ("qrels run -m nDGC@10", "unknown measure 'nDGC@10'; nearest names: nDCG"),
    ("qrels run -m nDCG@-3", "cutoff k must be a positive integer, got -3"),
    ("qrels run -m P", "P needs a cutoff"),
    ("qrels run -m UL2(UL2(AP))", "a measure takes one bounding"),
    ("qrels run --depth -1", "depth must be a positive integer"),
    ("qrels run --depth 0", "depth must be a positive integer"),
    ("qrels run --candidates some.pairs", "some.pairs: candidates must contain every judged document"),
    ("qrels run --candidates elsewhere", "candidates must contain every judged document"),
    ("qrels run --candidates absent", "absent: cannot be read: No such file"),
    ("qrels run --candidates three.fields", "three.fields:1: expected lines of a TREC run"),
    ("qrels run --candidates malformed", "malformed:2: expected 6 fields"),
    ("qrels run --candidates labels.csv", "no column for docid"),
    ("qrels run --candidates column:pool", "candidates='column:pool' needs judgments in a frame"),
    ("qrels run --candidates some.pairs --judged-outside maybe", "'maybe'"),
    ("qrels run --ties best", "'best'"),
    ("qrels run --empty maybe", "'maybe'"),
    ("qrels run --frobnicate", "--frobnicate"),
    ("qrels", "RUN"),
    ("- -", "can be named only once"),
    ("qrels run run", "run is named twice"),
    ("qrels run --per-query v.xlsx", "v.xlsx: the name of a table must end with one of .parquet, .csv, .json"),
    ("qrels run --per-query folder.csv", "folder.csv: is a folder"),
    ("qrels run --per-query run/v.csv", "run/v.csv: cannot be written"),
]

OTHERS = [
    ("compare qrels run", "at least two runs, got 1"),
    ("compare qrels run elsewhere", "no query in common"),
    ("compare qrels run malformed", "malformed:2: expected 6 fields"),
    ("compare qrels run other --candidates some.pairs", "candidates must contain every judged document"),
    ("report qrels run other -o p.html --candidates some.pairs", "candidates must contain every judged document"),
    ("compare qrels run other -m nDGC", "unknown measure 'nDGC'"),
    ("compare qrels run other --confidence 95", "confidence must lie between 0 and 1, got 95"),
    ("compare qrels run other --resamples 0", "resamples must be a positive integer, got 0"),
    ("compare qrels run other --seed -1", "--seed must not be negative"),
    ("compare qrels run other --depth 0", "depth must be a positive integer"),
    ("bounds nDCG", "one of --labels and --n with --relevant is required"),
    ("bounds nDCG --n 3 --relevant 4", "relevant must not exceed n"),
    ("bounds nDCG --n -3 --relevant 0", "n must be non-negative integers, got -3"),
    ("bounds nDCG --n 3 --relevant 1 --depth 0", "depth must be a positive integer or None, got 0"),
    ("distribution nDCG --n 3 --relevant 1 --depth 0", "depth must be a positive integer or None, got 0"),
    ("bounds nDCG --n three --relevant 0", "Invalid value for '--n'"),
    ("bounds nDCG --labels 1,x", "--labels must be numbers separated by commas, such as 2,0,1, got '1,x'"),
    ("bounds nDCG --labels 1,nan", "labels must be finite numbers, at least one"),
    ("bounds nDCG --n 3 --relevant 1 --labels 1", "pass either labels or n and relevant"),
    ("bounds UL2(nDCG) --n 3 --relevant 1", "measure must be a plain measure, such as nDCG, got UL2(nDCG)"),
    ("weights absent", "absent: cannot be read"),
    ("weights empty", "empty: is empty"),
    ("weights words", "words:1: label must be an integer"),
    ("weights words.csv", "words.csv:2: label must be a finite number, got 'good'"),
    ("weights qrels --bounding UL2", "bounding must be affine to have a weight per query"),
    ("weights qrels --bounding nothing", "bounding must be one of"),
    ("weights qrels -o weights.doc", "weights.doc: the name of a table must end with"),
    ("weights -", "--format must be letor or qrels for standard input"),
    ("demo", "-o"),
    ("demo -o qrels", "qrels: is a file, expected a folder"),
    ("demo -o new --queries 3", "at least 10"),
    ("evalute qrels run", "there is no command 'evalute'; did you mean evaluate?"),
    ("--nonsense", "--nonsense"),
]


@pytest.fixture
def bad_files(files):
    """The usual files and those that are wrong."""
    for name, content in FILES.items():
        (files / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for folder in ("folder", "folder.csv"):
        (files / folder).mkdir()
    return files


def assert_refused(answer, message, folder, before):
    """One line that says what is wrong, and nothing else happened."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("rankbound: ")
    assert answer.err.count("\n") == 1
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("arguments", "message"), EVALUATE)
def test_evaluate_refuses(cli, bad_files, arguments, message):
    before = sorted(bad_files.rglob("*"))
    output = [] if "--per-query" in arguments else ["--per-query", "values.csv"]
    assert_refused(cli("evaluate", *arguments.split(), *output, "--json"), message, bad_files, before)


@pytest.mark.parametrize(("arguments", "message"), OTHERS)
def test_other_commands_refuse(cli, bad_files, arguments, message):
    before = sorted(bad_files.rglob("*"))
    assert_refused(cli(*arguments.split()), message, bad_files, before)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate qrels malformed --per-query v.csv", "malformed:2: expected 6 fields"),
        ("evaluate qrels run -m nDGC@10", "nearest names: nDCG"),
        ("evaluate qrels - -m AP", "-: expected lines of 6 fields"),
        ("compare qrels run elsewhere --per-query v.parquet", "no query in common"),
        ("weights empty -o w.txt", "empty: is empty"),
    ],
)
def test_in_a_process_of_its_own(shell, bad_files, arguments, message):
    before = sorted(bad_files.rglob("*"))
    assert_refused(shell(*arguments.split(), cwd=bad_files), message, bad_files, before)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(cli, bad_files):
    (bad_files / "folder").chmod(0o500)
    answer = cli("evaluate", "qrels", "run", "--per-query", "folder/v.csv")
    assert answer.code == 2
    assert "folder/v.csv: cannot be written" in answer.err
