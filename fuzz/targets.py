"""Targets of fuzzing: a name, a function that reads bytes as the files of a user, and valid inputs.

Every target must return, or raise an error of `rankbound.errors` whose message is neither empty nor too long. `attempt`
turns such an error into None, so that a target can run several readers on one input.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

from fuzz import seeds
from fuzz.mutations import SEPARATOR
from rankbound.data.frames import polars_failures
from rankbound.errors import RankboundError
from rankbound.lists import Lists

__all__ = ["TARGETS", "Target", "tried"]

_MAX_MESSAGE = 4_000  # characters: a message must not repeat a damaged file in full


@dataclass(frozen=True)
class Target:
    """A reader with valid inputs; ``read`` takes the bytes and an empty folder, and returns what it read."""

    read: Callable[[bytes, Path], list[Any]]
    seeds: Callable[[], list[bytes]]


def tried(target: Target, data: bytes, folder: Path) -> list[Any]:
    """Return what a target reads from the data, with None where it is refused; other exceptions propagate.

    A NumPy warning (overflow, an invalid value) means a wrong number in a table, and counts as a failure.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=RuntimeWarning)
        return target.read(data, folder)


def attempt(read: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a reader, None if it refuses the input."""
    try:
        return read(*arguments, **options)
    except RankboundError as error:
        message = str(error)
        if not 0 < len(message) <= _MAX_MESSAGE:
            raise AssertionError(f"a message of {len(message)} characters: {message[:200]}") from error
        return None


def _files(data: bytes, folder: Path, *names: str) -> list[Path]:
    """Write the parts of an input to files; a missing part is empty."""
    parts = data.split(SEPARATOR, len(names) - 1)
    parts += [b""] * (len(names) - len(parts))
    paths = [folder / name for name in names]
    for path, part in zip(paths, parts, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(part)
    return paths


def _named_file(data: bytes, folder: Path, otherwise: str) -> Path:
    """Write the second part of an input to a file with the name in the first part."""
    head, _, content = data.partition(SEPARATOR)
    name = head.decode("utf-8", "replace").replace("/", "").replace("\0", "")[:60]
    path = folder / (name if name.strip(".") else otherwise)
    path.write_bytes(content)
    return path


# ---- files of others -------------------------------------------------------------------------------------------------


def trec(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.trec import read_qrels, read_run
    from rankbound.evaluation import evaluate

    qrels, run = _files(data, folder, "qrels.txt", "run.txt")
    found = [attempt(read_qrels, qrels), attempt(read_run, run)]
    return [*found, attempt(evaluate, qrels, run, ["nDCG@3", "AP"], ties="docid", missing="zero")]


def letor(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.describe import describe
    from rankbound.data.letor import read_letor

    file, groups = _files(data, folder, "train.txt", "train.txt.query")
    if not groups.stat().st_size:
        groups.unlink()
    read = attempt(read_letor, file)
    if read is not None:
        assert not np.isinf(read.features).any()
        describe(read)
    return [read]


def ratings(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.describe import describe, read_any
    from rankbound.data.ratings import FORMATS, read_ratings

    path = _named_file(data, folder, "ratings.csv")
    read = attempt(read_ratings, path)
    if read is not None:
        describe(read)
    form = list(FORMATS)[len(data) % len(FORMATS)]
    attempt(read_ratings, path, form)
    attempt(read_any, path)
    return [read]


def beir(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.beir import read_beir
    from rankbound.data.describe import describe

    _files(data, folder, "qrels/test.tsv", "queries.jsonl", "corpus.jsonl")
    read = attempt(read_beir, folder)
    if read is not None:
        describe(read)
    return [read]


def json_files(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.sources import to_frame
    from rankbound.evaluation import evaluate

    lines, run = _files(data, folder, "golden.jsonl", "results/T_predictions.json")
    found = [attempt(to_frame, lines, "label"), attempt(to_frame, lines, "score"), attempt(to_frame, run, "score")]
    return [*found, attempt(evaluate, lines, run.parent, ["nDCG@3", "AP"], ties="docid")]


def faces(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.describe import describe
    from rankbound.data.faces import read_faces

    path = _named_file(data, folder, "faces.tar")
    image = path.suffix.lower() in (".jpg", ".jpeg", ".png")
    read = attempt(read_faces, folder if image else path, size=8)
    if read is not None:
        describe(read)
    return [read]


def csv(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.frames import lists_from_frame
    from rankbound.data.sources import to_frame
    from rankbound.evaluation import evaluate

    ending = "tsv" if b"\t" in data[:200] else "csv"
    qrels, run = _files(data, folder, f"qrels.{ending}", f"run.{ending}")
    found = [attempt(to_frame, qrels, "label"), attempt(to_frame, run, "score")]
    attempt(lists_from_frame, run)
    return [*found, attempt(evaluate, qrels, run, ["nDCG@3", "AP"], ties="docid")]


def parquet(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.frames import lists_from_frame
    from rankbound.data.ratings import read_ratings
    from rankbound.evaluation import evaluate

    path = folder / "table.parquet"
    if data.startswith(b"PAR1"):
        path.write_bytes(data)
    else:  # as text, so that columns of any type get past the format's own checks
        try:
            pl.read_csv(data, try_parse_dates=True).write_parquet(path, row_group_size=2)
        except polars_failures():
            return []
    qrels = pl.DataFrame({"qid": ["1", "2"], "docid": ["a", "b"], "label": [1, 2]})
    read = [attempt(lists_from_frame, path), attempt(read_ratings, path)]
    attempt(evaluate, path, measures="AP")
    attempt(evaluate, qrels, path, "AP", missing="zero")
    return [next((one for one in read if one is not None), None)]


def compressed(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.set_files import content_sha256
    from rankbound.data.text_chunks import line_chunks
    from rankbound.io import read_bytes

    (path,) = _files(data, folder, "text.txt")
    whole = attempt(read_bytes, path)
    attempt(content_sha256, path)
    chunks = attempt(lambda: list(line_chunks(path, 16)))
    assert (whole is None) == (chunks is None)
    if whole is not None:
        lines = whole.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        assert b"".join(text for _, text in chunks) == lines
    return [whole]


def archives(data: bytes, folder: Path) -> list[Any]:
    from rankbound.data.archives import unpack

    (folder / "box").mkdir()
    archive = _named_file(data, folder / "box", "a.zip")
    target = folder / "target"
    files = attempt(unpack, archive, target)
    assert [path.name for path in folder.iterdir() if path.name not in ("box", "target")] == []
    assert list((folder / "box").iterdir()) == [archive]
    there = sorted(path for path in target.rglob("*") if not path.is_dir())
    assert there == sorted(set(files or [])), "all files arrive, or none"
    assert all(path.is_file() and not path.is_symlink() for path in there)
    return [files]


# ---- files of our own ------------------------------------------------------------------------------------------------


def converted(data: bytes, folder: Path) -> list[Any]:
    """A damaged entry of the cache is read again from the source, so that nothing is refused."""
    from rankbound.data.array_cache import read_cached as read_or_cached
    from rankbound.data.describe import describe
    from rankbound.data.interactions import Interactions
    from rankbound.data.letor import LetorData

    head, *parts = data.split(SEPARATOR)
    kind: Any = LetorData if head == b"letor" else Interactions
    columns = "labels offsets qids features" if kind is LetorData else "users items user_names item_names ratings"
    (source,) = _files(head, folder, "source.txt")

    def read() -> Any:
        if kind is LetorData:
            return LetorData(Lists([1, 0, 2], [0, 2, 3], qids=np.array([7, 9])), np.ones((3, 2), np.float32))
        return Interactions.from_columns(["a", "a", "b"], [5, 6, 5], rating=[1, 2, 3])

    with mock.patch.dict(os.environ, RANKBOUND_CACHE=str(folder / "cache")):
        read_or_cached([source], read, kind)
        (entry,) = (path.parent for path in (folder / "cache").rglob("notes.json"))
        for name, part in zip(("notes.json", *(f"{name}.npy" for name in columns.split())), parts, strict=False):
            (entry / name).write_bytes(part)
        table = read_or_cached([source], read, kind)
        describe(table)
    return [table]


def models(data: bytes, folder: Path) -> list[Any]:
    """Digests are updated, so that the content they protect is tested as well."""
    from rankbound.models.saving import load_ranker

    head, *parts = data.split(SEPARATOR)
    try:
        index = json.loads(head)
        names = [
            name for name in index["files"] if isinstance(name, str) and "/" not in name and name not in ("", "..", ".")
        ]
        index["files"] = {name: hashlib.sha256(part).hexdigest() for name, part in zip(names, parts, strict=False)}
        index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
        for name, part in zip(names, parts, strict=False):
            (folder / name).write_bytes(part)
        head = json.dumps(index).encode()
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        pass
    (folder / "model.json").write_bytes(head)
    ranker = attempt(load_ranker, folder)
    if type(ranker).__name__ == "MatrixFactorization":
        attempt(ranker.predict, [0, 1], [1, 9])
    elif ranker is not None:
        attempt(lambda: ranker.predict(np.zeros((2, ranker.n_features_in_))))
    return [ranker]


def checkpoints(data: bytes, folder: Path) -> list[Any]:
    from rankbound.checkpoints import Checkpoints

    metadata, arrays = _files(data, folder, "epoch-000003/state.json", "epoch-000003/state.safetensors")
    try:
        record = json.loads(metadata.read_bytes())
        sealed = json.dumps(record, sort_keys=True).encode() + arrays.read_bytes()
        metadata.write_text(json.dumps(record | {"sha256": hashlib.sha256(sealed).hexdigest()}))
    except (ValueError, TypeError, RecursionError):
        pass
    return [attempt(Checkpoints(folder, {"model": "x", "seed": 1}).load)]


def store(data: bytes, folder: Path) -> list[Any]:
    """Damage to any file of a store."""
    first, second = (f"{slot.id}.parquet" for slot in seeds.slots())
    _, scores, history = _files(data, folder, "trials.sqlite", f"scores/{first}", f"history/{first}")
    shutil.copy(scores, scores.with_name(second))
    shutil.copy(history, history.with_name(second))
    return _read_store(folder)


def trials(data: bytes, folder: Path) -> list[Any]:
    """Files of a store with correct checksums, but with scores, history and metadata that no trial produces."""
    from rankbound.data.frames import read_frame

    *tables, metadata = _files(data, folder, "scores.csv", "history.csv", "metadata.json")
    digests = {}
    first, second = (f"{slot.id}.parquet" for slot in seeds.slots())
    for table in tables:
        frame = attempt(read_frame, table)
        if frame is None:
            return [None]
        part = folder / table.stem
        part.mkdir()
        frame.write_parquet(part / first)
        shutil.copy(part / first, part / second)
        digests[part.name] = hashlib.sha256((part / first).read_bytes()).hexdigest()
    database = folder / "trials.sqlite"
    database.write_bytes(seeds.stores()[0].split(SEPARATOR)[0])
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        noted = (metadata.read_text("utf-8", "replace"), json.dumps(digests))
        connection.execute("UPDATE trials SET metadata = ?, files = ?", noted)
    return _read_store(folder)


def _read_store(folder: Path) -> list[Any]:
    from rankbound.studies.store import open_store

    opened = attempt(open_store, folder)
    if opened is None:
        return [None]
    with opened:
        found = [attempt(opened.score_table), attempt(opened.history_table), attempt(opened.results, "study")]
        return [*found, attempt(opened.trials), attempt(opened.failures), attempt(opened.seconds)]


def distributions(data: bytes, folder: Path) -> list[Any]:
    """A damaged distribution is computed again: nothing is refused, and the result is a distribution."""
    from rankbound.difficulty.distribution import cache as distribution_cache

    path = distribution_cache._path("fuzz")
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    found = distribution_cache.load("fuzz")
    assert found is None or abs(found[1].sum() - 1) < 1e-6
    return [found]


# ---- words -----------------------------------------------------------------------------------------------------------


def measures(data: bytes, folder: Path) -> list[Any]:
    """A measure's name, labels, --only and --param."""
    from rankbound.cli.options import Query
    from rankbound.cli.reproduce import parse_only
    from rankbound.cli.train import parse_value
    from rankbound.difficulty.bounds import bounds
    from rankbound.evaluation import evaluate_lists
    from rankbound.measures.measure import parse_measure

    name, labels, only, value = (data.decode("utf-8", "replace").split(SEPARATOR.decode()) + [""] * 3)[:4]
    measure = attempt(parse_measure, name)
    if measure is not None:
        assert parse_measure(str(measure)) == measure
        assert hash(parse_measure(str(measure))) == hash(measure)
        attempt(evaluate_lists, Lists([2, 0, 1, 0], [0, 3, 4], [0.5, 0.5, 1.0, 2.0]), [measure])
        query = attempt(Query.parse, None, None, labels, None)
        if query is not None:
            attempt(bounds, measure, labels=query.labels)
    attempt(parse_only, [only])
    attempt(parse_value, value)
    return [measure]


def study(data: bytes, folder: Path) -> list[Any]:
    from rankbound.cli.train import _read_config
    from rankbound.studies.expansion import expand, make_quick, select
    from rankbound.studies.study_files import load_study

    (path,) = _files(data, folder, "study.toml")
    attempt(_read_config, str(path))
    read = attempt(load_study, str(path))
    if read is not None and _size(read) < 2000:
        planned = attempt(expand, read, fetch=False)
        if planned is not None:
            attempt(select, planned, read.quick.only)
        attempt(make_quick, read)
    return [read]


def _size(study: Any) -> int:
    """Approximate number of trials of a study, which users choose: large studies that take long are not findings."""
    sizes = (
        len(choice.loss or [0]) * len(table.bounding) * len(table.nsr or [0]) * len(table.test_nsr or [0])
        * len(table.seeds) * (table.folds if isinstance(table.folds, int) else 5)
        * int(np.prod([len(values) for values in (choice.grid | table.vary).values()], dtype=object))
        for table in study.tables
        for choice in table.model_choices
    )  # fmt: skip
    return sum(sizes)


def scores(data: bytes, folder: Path) -> list[Any]:
    """A score table, the input of pages and comparisons."""
    from rankbound.evaluation import score_tables
    from rankbound.report.page import make_report

    try:
        table = pl.read_csv(io.BytesIO(data), try_parse_dates=True).with_columns(pl.col(pl.String).fill_null(""))
    except polars_failures():
        return []
    found = [attempt(score_tables.contrasts, table), attempt(score_tables.trial_means, table)]
    names = attempt(score_tables.measures_of, table) or []
    return [*found, attempt(score_tables.mean_scores, table, names[:2]), attempt(make_report, table)]


def published(data: bytes, folder: Path) -> list[Any]:
    from rankbound.studies.results import published_number, read_published

    (path,) = _files(data, folder, "study.published.csv")
    table = attempt(read_published, path, ["loss"])
    if table is not None:
        attempt(published_number, table, {"loss": "nDCG"}, "AP", {0})
    return [table]


TARGETS = {
    "trec": Target(trec, lambda: seeds.TREC),
    "letor": Target(letor, lambda: seeds.LETOR),
    "ratings": Target(ratings, lambda: seeds.RATINGS),
    "beir": Target(beir, lambda: seeds.BEIR),
    "json": Target(json_files, lambda: seeds.JSON),
    "faces": Target(faces, seeds.faces),
    "csv": Target(csv, lambda: seeds.CSV),
    "parquet": Target(parquet, seeds.parquet),
    "compressed": Target(compressed, seeds.compressed),
    "archives": Target(archives, seeds.archives),
    "measures": Target(measures, lambda: seeds.MEASURES),
    "study": Target(study, lambda: seeds.STUDY),
    "models": Target(models, seeds.models),
    "checkpoints": Target(checkpoints, seeds.checkpoints),
    "converted": Target(converted, seeds.converted),
    "store": Target(store, seeds.stores),
    "trials": Target(trials, seeds.trials),
    "scores": Target(scores, lambda: seeds.SCORES),
    "published": Target(published, lambda: seeds.PUBLISHED),
    "distributions": Target(distributions, seeds.distributions),
}
