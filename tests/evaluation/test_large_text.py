"""TREC runs that are read in chunks: the bits of a run that is read at once, and errors that name the line."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rankbound as rb
from rankbound.cli.main import run as command
from rankbound.data import large, sources, trec
from rankbound.evaluation import large as evaluation
from rankbound.io import reading, watched_progress

pytestmark = [
    pytest.mark.filterwarnings("ignore::rankbound.errors.InferenceWarning"),
    pytest.mark.full("reads large files"),
]  # of intervals for few queries

MEASURES = ["nDCG@10", "AP", "Bpref", "EM(nDCG@5)", "UL2(AP)", "NumRet", "AP(mean='geometric')"]


def texts(seed: int, queries: int = 12) -> tuple[str, list[str]]:
    """Judgments, and lines of a run with ties, unjudged documents, and queries that only one of the two has."""
    random = np.random.default_rng(seed)
    judged, ranked = [], []
    for query in random.permutation(queries):
        size = int(random.integers(1, 9))
        judged += [f"q{query} 0 d{d} {random.integers(0, 3)}\n" for d in range(size)]
    for query in random.permutation(queries + 1):
        if query % 7 == 3:
            continue
        documents = random.permutation(12)[: random.integers(1, 12)]
        ranked += [f"q{query} Q0 d{d} {r} {random.integers(0, 6) / 7} tag\n" for r, d in enumerate(documents)]
    return "".join(judged), ranked


def written(folder: Path, seed: int, kind: str = "", mixed: bool = False) -> tuple[Path, Path]:
    judged, lines = texts(seed)
    if mixed:
        lines = list(np.random.default_rng(seed).permutation(lines))
    lines.insert(len(lines) // 2, "# a comment\n\n")
    content = "".join(lines).encode()
    content = {"": content, ".gz": gzip.compress(content), ".zst": zstandard.compress(content)}[kind]
    qrels, run = folder / "qrels.txt", folder / f"run.txt{kind}"
    qrels.write_text(judged)
    run.write_bytes(content)
    return qrels, run


def in_chunks(size: int) -> ExitStack:
    """Read every TREC run in chunks of so many bytes."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(sources, "LARGE_TEXT", 1))
    stack.enter_context(mock.patch.object(trec, "_AT_ONCE", size))
    stack.enter_context(mock.patch.object(large, "ROWS", 1 if size < 10_000 else 1_000_000))
    return stack


def evaluated(size: int | None, *arguments: Any, **options: Any) -> rb.evaluation.Evaluation:
    if size is None:
        return rb.evaluate(*arguments, **options)
    with in_chunks(size):
        return rb.evaluate(*arguments, **options)


def bits(result: rb.evaluation.Evaluation) -> dict[str, Any]:
    summary = result.to_dict()
    return {key: value for key, value in summary.items() if key != "shuffled"} | {
        "intervals": repr(result.interval(resamples=100)),  # which may be NaN
        "coverage": result.coverage,
    }


OPTIONS = (
    {"bounds": True},
    {"missing": "zero", "empty": "zero"},
    {"judged_only": True, "ties": "docid"},
    {"depth": 3, "ties": "input"},
    {"candidates": "returned"},
    {"candidates": {f"q{query}": [f"d{d}" for d in range(14)] for query in range(25)}},
    {"against_random": True},
)


@given(
    st.integers(0, 5), st.sampled_from([40, 300, 10_000]), st.sampled_from(["", ".gz", ".zst"]), st.booleans(),
    st.sampled_from(OPTIONS),
)  # fmt: skip
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_give_the_bits_of_the_whole_run(
    tmp_path: Path, seed: int, size: int, kind: str, mixed: bool, options: dict[str, Any]
) -> None:
    paths = written(tmp_path, seed, kind, mixed)
    whole = evaluated(None, *paths, MEASURES, **options)
    result = evaluated(size, *paths, MEASURES, **options)
    assert bits(result) == bits(whole)
    assert result.per_query.equals(whole.per_query)  # in the same order
    assert ("shuffled" in result.policy) == (mixed and size < 10_000)


def test_references_and_judgments_in_other_forms(tmp_path: Path) -> None:
    qrels, run = written(tmp_path, 1)
    references = []
    for seed in (2, 3):
        (tmp_path / str(seed)).mkdir()
        references.append(written(tmp_path / str(seed), seed)[1])
    measures = ["AP", "STD(AP)"]
    frame = trec.read_qrels(qrels)
    labels = {
        q: dict(part.select("docid", "label").rows()) for (q,), part in frame.group_by("qid", maintain_order=True)
    }
    whole = evaluated(None, qrels, run, measures, references=references)
    for judgments in (qrels, frame, labels):
        assert bits(evaluated(100, judgments, run, measures, references=references)) == bits(whole)


def test_memory_is_that_of_a_chunk(tmp_path: Path) -> None:
    """No more rows are combined with judgments at once than a chunk and a query have."""
    paths = written(tmp_path, 0)
    rows = []

    def watched(judged: pl.DataFrame, run: pl.DataFrame, **options: Any) -> rb.Lists:
        rows.append(len(run))
        return from_frames(judged, run, **options)

    from_frames = evaluation.from_frames
    with mock.patch.object(evaluation, "from_frames", watched):
        evaluated(400, *paths, MEASURES)
    assert max(rows) <= 400 // len("q1 Q0 d1 1 0.0 tag") + 12
    assert len(rows) > 3


def test_queries_that_come_again_are_named_without_shuffling(tmp_path: Path) -> None:
    paths = written(tmp_path, 0, mixed=True)
    result = evaluated(100, *paths, "AP", scratch=tmp_path / "scratch")
    assert result.policy["shuffled"].startswith("the rows of query 'q")
    assert list((tmp_path / "scratch").iterdir()) == []  # it is removed
    with pytest.raises(rb.errors.DataError, match=r"run\.txt: the rows of query 'q\d+' are not adjacent: sort the"):
        evaluated(100, *paths, "AP", shuffle=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 d1 1 0.5\n", "expected 6 fields (qid q0 docid rank score tag), got 5: 'q1 Q0 d1 1 0.5'"),
        ("q1 Q0 d1 1 nan tag\n", "score must be finite, got 'nan'"),
        ("q1 Q0 d\x01 1 1 tag\n", "a line must have no control characters but tabs, got '\\x01' in"),
        ("q99 Q0 d1 1 1 tag\n" * 2, "a document must occur once per query, got 'd1' again in query 'q99'"),
    ],
)
@pytest.mark.parametrize("size", [None, 60, 100_000])
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str, size: int | None) -> None:
    qrels, run = written(tmp_path, 0)
    with qrels.open("a") as stream:
        stream.write("q99 0 d1 1\n")
    good = run.read_text()
    run.write_text(good + line)
    number = good.count("\n") + line.count("\n")
    with pytest.raises(rb.errors.DataError) as error:
        evaluated(size, qrels, run, "AP")
    assert str(error.value).startswith(f"{run}:{number}: {message}")


def test_bytes_that_are_not_utf_8_and_empty_files_are_named(tmp_path: Path) -> None:
    qrels, run = written(tmp_path, 0)
    good = run.read_bytes()
    run.write_bytes(good + b"q1 Q0 d\xff 1 1 tag\n")
    line = good.count(b"\n") + 1
    with pytest.raises(rb.errors.DataError, match=rf"run\.txt:{line}: text must be UTF-8, got byte 0xff"):
        evaluated(60, qrels, run, "AP")
    run.write_text("# only a comment\n\n")
    with pytest.raises(rb.errors.DataError, match=r"run\.txt: expected lines of 6 fields, got an empty file"):
        evaluated(60, qrels, run, "AP")
    run.write_bytes(gzip.compress(good)[:-40])
    with pytest.raises(rb.errors.DataError, match=r"run\.txt: cannot be read"):
        evaluated(60, qrels, run, "AP")
    run.write_text("other Q0 d1 1 1 tag\n")
    with pytest.raises(rb.errors.DataError, match="qrels and run have no query in common"):
        evaluated(5, qrels, run, "AP")


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_the_progress_counts_bytes_of_the_file(tmp_path: Path, kind: str) -> None:
    qrels, run = written(tmp_path, 0, kind)
    seen: list[tuple[str, int, int]] = []
    size = run.stat().st_size
    every_file = mock.patch.object(reading, "WATCHED", 1)
    with in_chunks(100), every_file, watched_progress(lambda *report: seen.append(report)):
        rb.evaluate(qrels, run, "AP")
    done = [read for _, read, total in seen if total == size]
    assert {step for step, _, _ in seen} == {"reading"}
    assert done == sorted(done)
    assert done[-1] == size
    seen.clear()
    with watched_progress(lambda *report: seen.append(report)):
        rb.evaluate(qrels, run, "AP")
    assert seen == []  # small files are read at once


def test_the_command_evaluates_a_large_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    qrels, run = written(tmp_path, 0, mixed=True)
    arguments = ["evaluate", str(qrels), str(run), "-m", "AP"]
    assert command([*arguments, "--json"]) == 0
    whole = capsys.readouterr().out
    with in_chunks(100):
        assert command([*arguments, "--scratch", str(tmp_path)]) == 0
        assert "shuffled by query, because the rows of query 'q" in capsys.readouterr().out
        assert command([*arguments, "--json"]) == 0
        assert '"shuffled": "the rows' in (text := capsys.readouterr().out)
        assert text.split('"mean"')[1].split("}")[0] == whole.split('"mean"')[1].split("}")[0]
        assert command([*arguments, "--no-shuffle"]) == 2
        assert "are not adjacent" in capsys.readouterr().err
