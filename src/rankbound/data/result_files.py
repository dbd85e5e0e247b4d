"""Read runs from what MTEB and BEIR write, and ``{query: {document: number}}`` in a JSON file in general.

MTEB writes ``TASK_predictions.json`` into its prediction folder: ``{subset: {split: {query: {document: score}}}}`` next
to a description of the model, or in its first versions ``TASK_SUBSET_predictions.json`` with the queries alone. BEIR's
``save_runfile`` writes ``DATASET.run.trec``, a TREC run. Both also write files with means of measures, in which no
query can be found again: these are refused.

A path stands for one run. Of a file with several subsets or splits, what follows a ``#`` names one: ``file.json#en`` or
``file.json#en/test``.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from rankbound.data.csv_text import base_name
from rankbound.data.json_lines import RuleError, Table, id_of, numbers_by_id, object_of_pairs, shorten
from rankbound.data.text_chunks import StrPath, read_text
from rankbound.errors import DataError, FileFormatError

Object: TypeAlias = dict[str, Any]

_RUN_ENDINGS = ("_predictions.json", ".run", ".run.txt", ".trec", ".jsonl", ".ndjson")
_DESCRIPTION = "mteb_model_meta"
_MEANS_OF_BEIR = {"ndcg", "map", "recall", "precision", "mrr", "recall_cap", "hole"}
_HOW_TO_SAVE = "MTEB saves them with prediction_folder=..., BEIR with util.save_runfile"
_NAMED = 8  # names that a message lists
_LEVELS = 4  # dicts: subset, split, query, document


def is_json(source: object) -> bool:
    """Whether a source is the path of a JSON file, compressed or not, or of a part of it.

    >>> [is_json(name) for name in ("run.json", "run.json.gz", "run.json#en/test", "run.jsonl", "run.txt")]
    [True, True, True, False, False]
    """
    return isinstance(source, (str, PathLike)) and base_name(_split_path(source)[0]).endswith(".json")


def is_result_folder(source: object) -> bool:
    """Whether a source is the path of a folder; a folder of parquet files, whose name says so, is a table."""
    if not isinstance(source, (str, PathLike)) or "\0" in str(source):
        return False
    return Path(source).is_dir() and not str(source).rstrip("/").endswith(".parquet")


def find_run(folder: StrPath) -> Path:
    """Return the only run in a folder of results; DataError if there is none, or more than one."""
    names = sorted(file.name for file in Path(folder).iterdir() if file.is_file() and not file.name.startswith("."))
    runs = [name for name in names if base_name(name).endswith(_RUN_ENDINGS)]
    if not runs:
        raise DataError(
            f"{folder}: a folder of results must have rankings per query (*_predictions.json or *.run.trec), got "
            f"{_listed(names) or 'no file'}; {_HOW_TO_SAVE}"
        )
    if len(runs) > 1:
        raise DataError(f"{folder}: a folder that is a run must have one, got {_listed(runs)}; name the file")
    return Path(folder) / runs[0]


def read_json(source: StrPath, number: str) -> Table:
    """Return ``{query: {document: number}}`` from a JSON file, where ``number`` is ``label`` or ``score``.

    Raises FileFormatError for the first query that breaks a rule.
    """
    path, wanted = _split_path(source)
    tables = _tables_of(path, _parse(path))
    if wanted:
        chosen = {name: table for name, table in tables.items() if f"{name}/".startswith(f"{wanted}/")}
        if not chosen:
            raise DataError(f"{path}: has no part {wanted!r}, only {_listed(list(tables))}")
        tables = chosen
    if len(tables) > 1:
        some = next(iter(tables))
        raise DataError(f"{path}: holds {len(tables)} runs ({_listed(list(tables))}); name one, as in {path}#{some}")
    (table,) = tables.values()
    found: Table = {}
    for query, documents in table.items():
        try:
            found[id_of(query, "a query")] = numbers_by_id(documents, f"the {number}s of query {query!r:.60}")
        except RuleError as error:
            raise FileFormatError(path, None, error.rule, f"got {shorten(error.got)}") from None
    if not found:
        raise FileFormatError(path, None, "expected {query: {document: number}}", "got no query")
    return found


def _split_path(source: StrPath) -> tuple[str, str]:
    """The path of a file and the part that is wanted of it; a file whose name has a # is itself."""
    path, mark, part = str(source).rpartition("#")
    if not mark or ("\0" not in path and Path(source).exists()):
        return str(source), ""
    return path, part.strip("/")


def _parse(path: str) -> Object:
    text = read_text(path)
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=object_of_pairs)
    except UnicodeDecodeError as error:
        raise FileFormatError(path, None, "text must be UTF-8", f"got byte {error.object[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise FileFormatError(path, error.lineno, "a file must be one JSON object", f"got {error.msg}") from None
    except RuleError as error:
        raise FileFormatError(path, None, error.rule, f"got {shorten(error.got)}") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(path, None, "a file must be one JSON object", f"got {error}"[:200]) from None
    if not isinstance(content, dict):
        raise FileFormatError(path, None, "a file must be one JSON object", f"got {shorten(content)}")
    return content


def _tables_of(path: str, content: Object) -> dict[str, Object]:
    """The tables ``{query: {document: number}}`` of a file by their names, ``subset/split``; "" if it is one table."""
    content = {name: part for name, part in content.items() if name != _DESCRIPTION}
    found = {"": content}
    for _ in range(min(_count_levels(content), _LEVELS) - 2):
        found = {
            f"{name}/{part}".lstrip("/"): table
            for name, parts in found.items()
            for part, table in parts.items()
            if isinstance(table, dict)
        }
    found = {name: table for name, table in found.items() if table} or {"": {}}
    if _are_means(content) or any(not isinstance(part, dict) for table in found.values() for part in table.values()):
        rule = "expected rankings per query, {query: {document: number}}"
        raise FileFormatError(path, None, rule, f"got {_listed(list(content))}; {_HOW_TO_SAVE}")
    return found


def _count_levels(content: Object, most: int = _LEVELS) -> int:
    """How many dicts are in each other, up to a limit, which deep nesting of anything else exceeds."""
    inner = (part for part in content.values() if isinstance(part, dict))
    return 1 + (max((_count_levels(part, most - 1) for part in inner), default=0) if most else 0)


def _are_means(content: Object) -> bool:
    """Whether a file has BEIR's means of measures, ``{"ndcg": {"NDCG@10": 0.5}, "map": ...}``."""
    return {"ndcg", "map"} <= set(content) <= _MEANS_OF_BEIR


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"{name!s:.60}" for name in names[:_NAMED]) + more
