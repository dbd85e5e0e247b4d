"""Describe data sets in numbers, and read files of any known format by their content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankbound.data.beir import BeirData, read_beir
from rankbound.data.faces import Faces, read_faces
from rankbound.data.interactions import Interactions
from rankbound.data.judged_runs import JudgedRuns
from rankbound.data.letor import LetorData, read_letor
from rankbound.data.ratings import read_ratings
from rankbound.data.text_chunks import StrPath, line_chunks
from rankbound.data.trec import read_qrels
from rankbound.errors import DataError
from rankbound.lists import Lists

__all__ = ["describe", "read_any", "size_histogram"]

_LETOR_LINE = re.compile(r"\S+\s+(qid:\S+|\d+:\S+)(\s+\d+:\S*)*\s*(#.*)?$")


def read_any(path: StrPath) -> Any:
    """Read a file or folder whose format is recognized: LETOR, ratings, faces or BEIR."""
    source = Path(path)
    if source.is_dir():
        if any(source.glob("corpus.jsonl*")):
            return read_beir(source)
        if any(source.rglob("*.jpg")) or any(source.rglob("*.png")):
            return read_faces(source)
        raise DataError(f"{path}: a folder must contain a BEIR corpus or images; name a file for the other formats")
    if not source.is_file():
        raise DataError(f"{path}: no such file, and no data set of that name (see rankbound data list)")
    if source.name.endswith((".npz", ".tar", ".tar.gz", ".tgz")):
        return read_faces(source)
    if ".parquet" in source.suffixes:
        return read_ratings(source)
    return read_letor(source) if _LETOR_LINE.match(_first_row(source)) else read_ratings(source)


def describe(data: Any) -> dict[str, Any]:
    """Return counts, labels and list sizes as plain Python values.

    >>> from rankbound.data.synthetic import synthetic_letor
    >>> summary = describe(synthetic_letor(queries=20, features=6, seed=2))
    >>> summary["queries"], summary["features"], list(summary["labels"])
    (20, 6, ['0', '1', '2'])
    """
    if isinstance(data, LetorData):
        unknown = float(np.isnan(data.features).mean()) if data.features.size else 0.0
        summary = _of_lists("letor", data.lists) | {"features": data.features.shape[1], "unknown_values": unknown}
    elif isinstance(data, Interactions):
        summary = {
            "kind": "ratings",
            "users": len(data.user_names),
            "items": len(data.item_names),
            "interactions": len(data),
            "features": 0,
            "labels": _counted([] if data.ratings is None else data.ratings),
            "list_sizes": _spread(data.per_user),
        }
    elif isinstance(data, Faces):
        height, width, *channels = data.images.shape[1:]
        summary = {
            "kind": "faces",
            "images": len(data),
            "height": height,
            "width": width,
            "channels": channels[0] if channels else 1,
            "features": int(np.prod(data.images.shape[1:])),
            "labels": _counted(data.ages),
        }
    elif isinstance(data, BeirData):
        summary = _of_lists("beir", data.lists) | {"documents": len(data.corpus)}
    elif isinstance(data, JudgedRuns):
        judged = read_qrels(data.qrels)
        sizes = judged["qid"].value_counts()["count"].to_numpy().astype(np.int64)
        summary = {
            "kind": "runs",
            "judgments": len(judged),
            "queries": len(sizes),
            "runs": len(data),
            "features": 0,
            "labels": _counted(judged["label"].to_numpy()),
            "list_sizes": _spread(sizes),
        }
    elif isinstance(data, Lists):
        summary = _of_lists("trec", data)
    else:
        raise DataError(f"expected a data set, got {type(data).__name__}")
    return summary | {"notes": list(getattr(data, "notes", ()))}


def size_histogram(sizes: ArrayLike) -> list[dict[str, int]]:
    """Count the sizes between powers of two.

    >>> size_histogram([1, 2, 3, 9])
    [{'from': 1, 'to': 1, 'count': 1}, {'from': 2, 'to': 3, 'count': 2}, {'from': 8, 'to': 15, 'count': 1}]
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    power = np.floor(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    counts = np.bincount(power[sizes > 0])
    filled = [{"from": 2**k, "to": 2 ** (k + 1) - 1, "count": int(n)} for k, n in enumerate(counts) if n]
    empty = int((sizes == 0).sum())
    return [{"from": 0, "to": 0, "count": empty}, *filled] if empty else filled


def _of_lists(kind: str, lists: Lists) -> dict[str, Any]:
    return {
        "kind": kind,
        "rows": len(lists.labels),
        "queries": len(lists),
        "features": 0,
        "labels": _counted(lists.labels),
        "list_sizes": _spread(lists.sizes),
    }


def _counted(labels: ArrayLike) -> dict[str, int]:
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    return {f"{value:g}": int(count) for value, count in zip(values.tolist(), counts.tolist(), strict=True)}


def _spread(sizes: NDArray[np.int64]) -> dict[str, Any]:
    if len(sizes) == 0:
        return {"min": 0, "median": 0.0, "max": 0, "histogram": []}
    return {
        "min": int(sizes.min()),
        "median": float(np.median(sizes)),
        "max": int(sizes.max()),
        "histogram": size_histogram(sizes),
    }


def _first_row(path: Path) -> str:
    for _, text in line_chunks(path, 1 << 16):
        for row in text.decode("utf-8", "replace").splitlines():
            if row.strip() and not row.lstrip().startswith("#"):
                return row
    raise DataError(f"{path}: has no line of data")
