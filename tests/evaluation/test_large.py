"""Tables in parts: the same bits for every division, order of rows and number of workers; and what can go wrong."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import rankbound as rb
from rankbound.data import large
from rankbound.data.parts import scratch_folder as large_scratch
from rankbound.difficulty.queries import query_weights, weights_of_parts
from rankbound.evaluation import merge_evaluations
from rankbound.evaluation.significance import EXACT_RANDOMIZATION
from rankbound.io import watched_progress
from rankbound.measures import registry
from rankbound.parallel import clusters
from tests.tiers import examples

MEASURES = ("nDCG@10", "AP", "ERR@5", "Bpref", "EM(nDCG@10)", "UL2(AP)", "NumRet", "AP(mean='geometric')")


def tables(queries: int = 40, seed: int = 0, text: bool = False) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Judgments and a run with ties, unjudged and unreturned documents, and queries that only one of them has."""
    random = np.random.default_rng(seed)
    judged, ranked = [], []
    for query in range(queries):
        name = f"q{query}" if text else query
        n = int(random.integers(1, 9))
        judged += [(name, f"d{d}", int(random.integers(0, 3))) for d in range(n)]
        if query % 7 != 3:
            ranked += [(name, f"d{d}", random.integers(0, 6) / 7) for d in random.permutation(n + 3)[: n + 1]]
    ranked.append((f"q{queries}" if text else queries, "d0", 1.0))
    return (
        pl.DataFrame(judged, schema=["qid", "docid", "label"], orient="row"),
        pl.DataFrame(ranked, schema=["qid", "docid", "score"], orient="row"),
    )


def write(table: pl.DataFrame, folder: Path, name: str, cuts: list[int]) -> str:
    """Write the table as several files, and return the pattern that names them."""
    folder.mkdir(exist_ok=True)
    for number, (start, end) in enumerate(itertools.pairwise([0, *sorted(cuts), len(table)])):
        table[start:end].write_parquet(folder / f"{name}-{number}.parquet")
    return str(folder / f"{name}-*.parquet")


def parts(
    qrels: Any, run: Any, measures: Any = MEASURES, *, rows: int = 1_000_000, **options: Any
) -> rb.evaluation.Evaluation:
    """Evaluate in parts of so many rows."""
    with mock.patch.multiple(large, ROWS=rows):
        return rb.evaluate(qrels, run, list(measures), **options)


def bits(result: Any) -> dict[str, Any]:
    """Every number of a result, compared without any tolerance."""
    summary = result.to_dict()
    return {
        "all": {key: value for key, value in summary.items() if key != "shuffled"},
        "intervals": result.interval(resamples=100),
        "coverage": result.coverage,
    }


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("missing", ["ignore", "zero"])
@given(
    st.integers(0, 3), st.booleans(), st.booleans(), st.booleans(), st.lists(st.integers(0, 120), max_size=3),
    st.sampled_from([5, 17, 60, 1000]),
)  # fmt: skip
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bits_do_not_depend_on_parts_or_order(
    tmp_path: Path, missing: str, seed: int, text: bool, mixed_qrels: bool, mixed_run: bool, cuts: list[int], rows: int
) -> None:
    qrels, run = tables(30, seed, text)
    whole = rb.evaluate(qrels, run, list(MEASURES), missing=missing, bounds=True)
    folder = tmp_path / f"{time.monotonic_ns()}"
    qrels = qrels.sample(fraction=1, shuffle=True, seed=seed) if mixed_qrels else qrels
    run = run.sample(fraction=1, shuffle=True, seed=seed) if mixed_run else run
    paths = write(qrels, folder, "qrels", cuts), write(run, folder, "run", cuts)
    result = parts(*paths, missing=missing, bounds=True, rows=rows)
    assert bits(result) == bits(whole)
    assert result.per_query.sort("qid").equals(whole.per_query.sort("qid"))


@pytest.mark.parametrize("name", [definition.name for definition in registry._BUILT_IN])
def test_values_of_a_query_do_not_depend_on_other_queries_or_on_the_order_of_rows(name: str) -> None:
    random = np.random.default_rng(3)
    sizes = random.choice([1, 2, 5, 9, 30], 14)
    labels = [random.integers(0 if query % 3 else -1, 4, size) for query, size in enumerate(sizes)]
    scores = [random.integers(0, size + 2, size) / 7 for size in sizes]
    names = [name, f"{name}@4", f"EM({name})", f"EM({name}@4)", f"UL2({name})"]
    measures = [measure for measure in names if _is_measure(measure)]

    def values(chosen: list[int], order: Any = None) -> pl.DataFrame:
        take = [np.arange(len(labels[query])) if order is None else order[query] for query in chosen]
        lists = rb.Lists(
            np.concatenate([labels[query][rows] for query, rows in zip(chosen, take, strict=True)]),
            np.concatenate(([0], np.cumsum([sizes[query] for query in chosen]))),
            np.concatenate([scores[query][rows] for query, rows in zip(chosen, take, strict=True)]),
        )
        return rb.evaluate(lists, measures=measures, bounds=True, empty="zero").per_query.drop("qid")

    everything = list(range(len(sizes)))
    whole = values(everything)
    assert pl.concat([values([query]) for query in everything]).equals(whole)
    assert values(everything, [random.permutation(size) for size in sizes]).equals(whole)


def _is_measure(name: str) -> bool:
    try:
        rb.parse_measure(name)
    except rb.errors.MeasureError:
        return False
    return True


def test_scored_tables(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pl.DataFrame({
        "qid": np.repeat(np.arange(50), 6), "label": random.integers(0, 3, 300), "score": random.random(300),
        "pool": random.random(300) < 0.8,
    })  # fmt: skip
    whole = rb.evaluate(rb.Lists.from_frame(table), measures=list(MEASURES[:4]))
    for name, mixed in (("sorted", False), ("mixed", True)):
        rows = table.sample(fraction=1, shuffle=True, seed=1) if mixed else table
        pattern = write(rows, tmp_path, name, [33, 200])
        result = parts(pattern, None, MEASURES[:4], rows=40)
        assert result.mean() == whole.mean()
        assert result.interval() == whole.interval()
        assert ("shuffled" in result.policy) == mixed
    column = rb.evaluate(tmp_path / "sorted-*.parquet", measures="EM(AP)", candidates="column:pool")
    lists = rb.Lists.from_frame(table, candidate="pool")
    assert column.mean() == rb.evaluate(lists, measures="EM(AP)").mean()


def test_candidates_depth_and_judged_only(tmp_path: Path) -> None:
    qrels, run = tables(20)
    paths = write(qrels, tmp_path, "qrels", [30]), write(run, tmp_path, "run", [20, 61])
    chosen = qrels.select("qid", "docid")
    for options in ({"candidates": chosen}, {"candidates": "returned"}, {"depth": 3}, {"judged_only": True}):
        expected = rb.evaluate(qrels, run, ["EM(AP)", "P@5"], **options)
        assert rb.evaluate(*paths, ["EM(AP)", "P@5"], **options).mean() == expected.mean()


def test_ids_of_different_types_are_compared_as_text(tmp_path: Path) -> None:
    qrels, run = tables(20)
    expected = rb.evaluate(qrels, run, "AP")
    paths = (
        write(qrels, tmp_path, "qrels", [30]),
        write(run.with_columns(pl.col("qid").cast(str)), tmp_path, "run", [9]),
    )
    assert bits(parts(*paths, ["AP"], rows=20)) == bits(expected)


@pytest.mark.parametrize("mixed", [False, True])
def test_large_judgments_in_one_file(tmp_path: Path, mixed: bool) -> None:
    qrels, run = tables(20)
    judged = qrels.sample(fraction=1, shuffle=True, seed=0) if mixed else qrels
    judged.write_parquet(tmp_path / "qrels.parquet")
    run.write_parquet(tmp_path / "run.parquet")
    for rows in (5, 30):  # judgments are shuffled, or looked up
        result = parts(tmp_path / "qrels.parquet", tmp_path / "run.parquet", rows=rows)
        assert bits(result) == bits(rb.evaluate(qrels, run, list(MEASURES)))
        assert ("shuffled" in result.policy) == (mixed and rows == 5)


@pytest.mark.parametrize("missing", ["ignore", "zero"])
@pytest.mark.parametrize("mixed", [False, True])
def test_judgments_in_memory(tmp_path: Path, missing: str, mixed: bool) -> None:
    """The queries are in the order of the judgments, as those of frames are."""
    qrels, run = tables(30, text=True)
    rows = run.sample(fraction=1, shuffle=True, seed=0) if mixed else run
    pattern = write(rows, tmp_path, "run", [17, 60])
    labels = {
        q: dict(part.select("docid", "label").rows()) for (q,), part in qrels.group_by("qid", maintain_order=True)
    }
    whole = rb.evaluate(qrels, run, list(MEASURES), missing=missing)
    for judgments in (qrels, labels):
        result = parts(judgments, pattern, rows=25, missing=missing)
        assert bits(result) == bits(whole)
        assert result.per_query.equals(whole.per_query)


def test_tables_that_are_not_sorted_are_looked_up_without_shuffling(tmp_path: Path) -> None:
    """The rows of a query are adjacent in both, but the queries are not in the same order."""
    qrels, run = tables(30)
    backwards = run.sort("qid", descending=True, maintain_order=True)
    paths = write(qrels, tmp_path, "qrels", [50]), write(backwards, tmp_path, "run", [40])
    for options in ({}, {"shuffle": False}):
        for missing in ("ignore", "zero"):
            result = parts(*paths, rows=10, missing=missing, **options)
            assert ("shuffled" in result.policy) == (not options)
            assert bits(result) == bits(rb.evaluate(qrels, run, list(MEASURES), missing=missing))
    assert "are not both sorted by query" in parts(*paths, rows=10).policy["shuffled"]


@pytest.mark.parametrize("ties", ["input", "docid"])
def test_shuffled_rows_of_a_query_keep_their_order(tmp_path: Path, ties: str) -> None:
    qrels, run = tables(30)
    mixed = run.sample(fraction=1, shuffle=True, seed=2).with_columns(score=pl.lit(1.0))
    paths = write(qrels, tmp_path, "qrels", []), write(mixed, tmp_path, "run", [40, 90])
    result = parts(*paths, rows=20, ties=ties)
    assert "shuffled" in result.policy
    assert bits(result) == bits(rb.evaluate(qrels, mixed, list(MEASURES), ties=ties))


def test_p_values_of_parts_are_those_of_tables(tmp_path: Path) -> None:
    qrels, run = tables(20)
    paths = write(qrels, tmp_path, "qrels", [30]), write(run, tmp_path, "run", [20, 61])
    result, whole = (rb.evaluate(*given, "AP", against_random=True) for given in (paths, (qrels, run)))
    assert result.per_query.sort("qid").equals(whole.per_query.sort("qid"))


def test_references_of_parts_are_those_of_tables(tmp_path: Path) -> None:
    qrels, run = tables(20)
    runs = [run, *(run.with_columns(score=(pl.col("score") * factor) % 1.0) for factor in (7919, 104729))]
    judgments = write(qrels, tmp_path, "qrels", [30])
    first, *others = (write(each, tmp_path, f"run{number}", [50]) for number, each in enumerate(runs))
    result = rb.evaluate(judgments, first, ["STD(AP)", "AP"], references=others)
    assert result.mean() == rb.evaluate(qrels, run, ["STD(AP)", "AP"], references=runs[1:]).mean()


def test_evaluations_of_partitions_can_be_merged() -> None:
    qrels, run = tables(20)
    halves = [[table.filter((pl.col("qid") < 9) == low) for table in (qrels, run)] for low in (True, False)]
    merged = merge_evaluations([rb.evaluate(*half, list(MEASURES), bounds=True) for half in halves])
    whole = rb.evaluate(qrels, run, list(MEASURES), bounds=True)
    assert (merged.mean(), merged.mean_bounds()) == (whole.mean(), whole.mean_bounds())
    assert merged.interval(resamples=100) == whole.interval(resamples=100)
    assert merged.coverage == whole.coverage


# ---- workers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    qrels, run = tables(60)
    write(qrels, path, "qrels", [50, 111])
    write(run, path, "run", [80])
    write(run.sample(fraction=1, shuffle=True, seed=0), path, "mixed", [100])
    return path


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    pytest.importorskip("cryptography")
    with clusters.open_client("local:2") as (client, _):
        yield client


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", ["run", "mixed"])
def test_workers_give_the_same_bits(folder: Path, client: Any, name: str) -> None:
    paths = str(folder / "qrels-*.parquet"), str(folder / f"{name}-*.parquet")
    alone = parts(*paths, bounds=True, rows=40)
    many = parts(*paths, bounds=True, rows=25, cluster=client, scratch=folder / "scratch")
    assert bits(many) == bits(alone)
    whole = rb.evaluate(*tables(60), list(MEASURES), bounds=True)
    assert many.per_query.equals(whole.per_query.sort("qid"))
    assert not list((folder / "scratch").glob("*"))


@pytest.mark.full("takes seconds")
def test_a_dask_frame_is_a_table_in_parts(folder: Path, client: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    qrels, run = tables(60)
    frames = [dd.from_pandas(table.to_pandas(), npartitions=3) for table in (qrels, run)]
    result = rb.evaluate(*frames, ["AP"], cluster=client, scratch=folder / "scratch")
    assert bits(result) == bits(rb.evaluate(qrels, run, ["AP"]))


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("work", ["evaluating", "weighting"])
def test_a_killed_worker_changes_nothing(folder: Path, client: Any, tmp_path: Path, work: str) -> None:
    """A worker is killed when the first part is done, and another one does its parts."""
    victim = next(iter(client.run(os.getpid).values()))
    killed = threading.Event()

    def kill(what: str, done: int, total: int) -> None:
        if what == work and not killed.is_set():
            os.kill(victim, signal.SIGKILL)
            killed.set()

    judgments, run = str(folder / "qrels-*.parquet"), str(folder / "mixed-*.parquet")
    with watched_progress(kill), mock.patch.multiple(large, ROWS=15):
        if work == "weighting":
            weights = weights_of_parts(judgments, measure="AP", cluster=client)
        else:
            result = rb.evaluate(judgments, run, list(MEASURES), cluster=client, scratch=tmp_path)
    assert killed.is_set()
    if work == "weighting":
        alone = weights_of_parts(judgments, measure="AP")
        assert (weights.qids.tolist(), weights.weights.tolist()) == (alone.qids.tolist(), alone.weights.tolist())
    else:
        assert bits(result) == bits(parts(judgments, run))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full("takes seconds")
def test_any_number_of_workers_gives_the_same_bits(folder: Path, client: Any, tmp_path: Path) -> None:
    judgments, options = str(folder / "qrels-*.parquet"), {"scratch": tmp_path, "cluster": client}
    expected: list[Any] = []
    for count, name, rows in ((4, "run", 25), (2, "mixed", 40), (1, "mixed", 17)):
        scale(client, count)
        run = str(folder / f"{name}-*.parquet")
        result = parts(judgments, run, rows=rows, **options)
        with mock.patch.multiple(large, ROWS=rows):
            weights = weights_of_parts(judgments, measure="AP", cluster=client)
        pair = rb.compare(run, judgments_as_run(tmp_path), qrels=judgments, measures=["AP"], resamples=200, **options)
        found = [
            bits(result), result.per_query.rows(), weights.qids.tolist(), weights.weights.tolist(),
            pair.to_dict()["differences"][0] | {"run": "", "baseline": ""},
        ]  # fmt: skip
        expected = expected or found
        assert found == expected
    scale(client, 2)


def scale(client: Any, count: int) -> None:
    client.cluster.scale(count)
    end = time.monotonic() + 120
    while len(client.scheduler_info(n_workers=-1)["workers"]) != count and time.monotonic() < end:
        time.sleep(0.05)


def judgments_as_run(folder: Path) -> str:
    """A run that has the labels as scores."""
    return write(tables(60)[0].rename({"label": "score"}), folder / "labels", "run", [70])


def test_a_corrupt_part_is_named(folder: Path, client: Any, tmp_path: Path) -> None:
    _, run = tables(60)
    pattern = write(run, tmp_path, "run", [80])
    damaged = tmp_path / "run-1.parquet"
    content = bytearray(damaged.read_bytes())
    content[4:200] = bytes(196)  # the pages, not the footer
    damaged.write_bytes(content)
    for cluster in (None, client):
        with pytest.raises(rb.errors.DataError, match=r"run-1\.parquet"):
            parts(str(folder / "qrels-*.parquet"), pattern, cluster=cluster)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run-0.parquet", "run-1.parquet"]


def test_versions_of_workers_must_agree(client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = str(folder / "qrels-*.parquet"), str(folder / "run-*.parquet")
    monkeypatch.setattr(clusters, "versions", lambda *_: clusters_versions | {"polars": "0.0.1"})
    with pytest.raises(rb.errors.DataError, match=r"worker tls://\S+ has polars \S+, the client has 0\.0\.1"):
        parts(*paths, cluster=client)


clusters_versions = clusters.versions()


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("arguments", [["evaluate", "qrels", "run", "--per-query"], ["weights", "qrels", "-o"]])
def test_a_killed_client_leaves_no_file(folder: Path, tmp_path: Path, arguments: list[str]) -> None:
    program = (
        "import os, sys\n"
        "from rankbound.cli.main import run\n"
        "from rankbound.data import large, parts\n"
        "large.ROWS = 20\n"
        "def kill(what, done, total):\n"
        "    if what in ('evaluating', 'weighting') and done > total / 2:\n"
        "        os.kill(os.getpid(), 9)\n"
        "parts.report_progress = kill\n"
        "run(sys.argv[1:])\n"
    )
    words = [str(folder / f"{word}-*.parquet") if word in ("qrels", "run") else word for word in arguments]
    target = tmp_path / "values.parquet"
    done = subprocess.run([sys.executable, "-c", program, *words, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not target.exists()


@pytest.mark.full("takes seconds")
@pytest.mark.skipif(os.name == "nt", reason="processes are killed by signals")
def test_a_run_removes_the_folder_of_a_killed_one(folder: Path, tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "import rankbound as rb\n"
        "from rankbound.data import large\n"
        "from rankbound.io import watched_progress\n"
        "large.ROWS = 20\n"
        "kill = lambda what, *_: what == 'evaluating' and os.kill(os.getpid(), 9)\n"
        "with watched_progress(kill):\n"
        "    rb.evaluate(*sys.argv[1:3], 'AP', scratch=sys.argv[3])\n"
    )
    judgments, run = (str(folder / f"{name}-*.parquet") for name in ("qrels", "mixed"))
    done = subprocess.run([sys.executable, "-c", program, judgments, run, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    seen = set[str]()

    def watch(what: str, *_: int) -> None:
        """Another run that starts meanwhile does not remove the folder of this one."""
        if what == "evaluating":
            with large_scratch(tmp_path):
                seen.update(path.name for path in tmp_path.iterdir())

    with watched_progress(watch):
        parts(judgments, run, rows=20, scratch=tmp_path)
    assert len(seen) > 1
    assert list(tmp_path.iterdir()) == []


# ---- what else works on parts ---------------------------------------------------------------------------------------


def test_comparisons_of_parts_are_those_of_tables(folder: Path, client: Any) -> None:
    """All means, intervals and p-values, also those of drawn signs, whatever the parts and the order of the rows."""
    qrels, run = tables(60)
    other = run.with_columns(score=(pl.col("score") * 7919) % 1.0)
    write(other, folder, "other", [70])
    options: dict[str, Any] = {"measures": ["AP", "EM(nDCG@10)"], "names": ["a", "b"], "resamples": 200}
    expected = rb.compare(run, other, qrels=qrels, **options)
    assert max(row.wins + row.losses for row in expected.rows) > EXACT_RANDOMIZATION  # signs are drawn
    judgments = str(folder / "qrels-*.parquet")
    for first, workers in (("run", {}), ("mixed", {}), ("mixed", {"cluster": client, "scratch": folder / "scratch"})):
        paths = [str(folder / f"{name}-*.parquet") for name in (first, "other")]
        result = rb.compare(*paths, qrels=judgments, **options, **workers)
        assert result.to_dict() == expected.to_dict()
        assert result.per_query.equals(expected.per_query)
    mixed = [table.sample(fraction=1, shuffle=True, seed=seed) for seed, table in enumerate((run, other, qrels))]
    assert rb.compare(*mixed[:2], qrels=mixed[2], **options).to_dict() == expected.to_dict()


@pytest.mark.parametrize("mixed", [False, True])
def test_weights_of_parts_are_those_of_the_table(tmp_path: Path, client: Any, mixed: bool) -> None:
    table = tables(60)[0].select("qid", "label")
    expected = query_weights(table["label"].to_numpy(), table["qid"].to_numpy(), measure="AP", normalize=True)
    mixed_rows = table.sample(fraction=1, shuffle=True, seed=0) if mixed else table
    pattern = write(mixed_rows, tmp_path, "labels", [100])
    for rows, options in ((30, {}), (50, {"cluster": client, "scratch": tmp_path})):
        with mock.patch.multiple(large, ROWS=rows):
            result = weights_of_parts(pattern, measure="AP", normalize=True, **options)
        assert result.qids.tolist() == expected.qids.tolist()  # ascending, as in the table
        assert result.weights.tolist() == expected.weights.tolist()
    with pytest.raises(rb.errors.ArgumentError, match="tables in parts must be parquet files"):
        weights_of_parts("labels.csv")


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input_is_named(folder: Path, tmp_path: Path) -> None:
    _, run = tables(60)
    judgments = str(folder / "qrels-*.parquet")
    with pytest.raises(rb.errors.DataError, match=r"query \d+ are split over \S+mixed-\d\.parquet .* allow shuffling"):
        parts(judgments, str(folder / "mixed-*.parquet"), rows=50, shuffle=False)
    run[:50].write_parquet(tmp_path / "a-0.parquet")
    run[50:].with_columns(pl.col("qid").cast(str)).write_parquet(tmp_path / "a-1.parquet")
    with pytest.raises(rb.errors.DataError, match=r"a-1\.parquet: column 'qid' must have the same type in all files"):
        parts(judgments, str(tmp_path / "a-*.parquet"))
    run.drop("score").write_parquet(tmp_path / "b-0.parquet")
    with pytest.raises(rb.errors.DataError, match=r"b-0\.parquet: no column for score"):
        parts(judgments, str(tmp_path / "b-*.parquet"))
    run.with_columns(score=pl.when(pl.col("qid") == 9).then(float("nan")).otherwise("score")).write_parquet(
        tmp_path / "c-0.parquet"
    )
    with pytest.raises(rb.errors.DataError, match=r"c-0\.parquet: column 'score' must hold finite numbers, got nan"):
        parts(judgments, str(tmp_path / "c-*.parquet"))
    pl.concat([run, run[-5:]]).write_parquet(tmp_path / "d-0.parquet")
    with pytest.raises(rb.errors.DataError, match=r"d-0\.parquet, rows .*: run: document '\w+' occurs more than once"):
        parts(judgments, str(tmp_path / "d-*.parquet"))
    run.with_columns(pl.col("qid") + 1000).write_parquet(tmp_path / "e-0.parquet")
    with pytest.raises(rb.errors.DataError, match="qrels and run have no query in common"):
        parts(judgments, str(tmp_path / "e-*.parquet"))
    run[:0].write_parquet(tmp_path / "f-0.parquet")
    with pytest.raises(rb.errors.DataError, match="there are no queries to evaluate"):
        parts(judgments, str(tmp_path / "f-*.parquet"))
    with pytest.raises(rb.errors.DataError, match=r"none-\*\.parquet: no such file"):
        rb.evaluate(judgments, str(tmp_path / "none-*.parquet"), "AP")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": 3}, "cluster must be local:N, the address of a scheduler, or a client of Dask, got int"),
        ({"cluster": "local:0"}, "needs a number of workers"),
    ],
)
def test_bad_arguments_are_named(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(rb.errors.ArgumentError, match=message):
        rb.evaluate(str(folder / "qrels-*.parquet"), str(folder / "run-*.parquet"), "AP", **options)


def test_options_of_parts_need_parquet_files() -> None:
    with pytest.raises(rb.errors.ArgumentError, match="cluster is for parquet files"):
        rb.evaluate({"q": {"a": 1}}, {"q": {"a": 1}}, "AP", cluster="local:2")
    with pytest.raises(rb.errors.ArgumentError, match="tables in parts must be parquet files"):
        rb.evaluate("qrels-*.parquet", {"q": {"a": 1}}, "AP")


def test_an_unreachable_scheduler_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT", "1s")
    with pytest.raises(rb.errors.DataError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        rb.evaluate(str(folder / "qrels-*.parquet"), str(folder / "run-*.parquet"), "AP", cluster="tcp://127.0.0.1:9")
