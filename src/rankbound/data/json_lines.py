"""Read JSON lines of queries with expected and retrieved ids, as tools for retrieval-augmented generation write them.

A line is an object with these keys; all others are ignored:

- ``qid``, ``query_id``, ``_id`` or ``id``, else ``query``: the name of the query. The first line decides which it is.
- ``expected_ids``: the relevant documents, with label 1; or ``relevance``: ``{document: label}``, or a list with a
  label for each of ``expected_ids`` or, if the line has none, of ``retrieved_ids``.
- ``retrieved_ids``: the ranking, the best document first; with ``scores``, the scores decide.

Ids are text, or integers, which are taken as their digits. A query may have no expected and no retrieved document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TypeAlias

from rankbound.data.csv_text import base_name
from rankbound.data.text_chunks import CONTROL, StrPath, line_chunks
from rankbound.errors import DataError, FileFormatError

Entry: TypeAlias = dict[str, object]
Table: TypeAlias = dict[str, dict[str, float]]

_NAMES = ("qid", "query_id", "_id", "id", "query")
_ENDINGS = (".jsonl", ".ndjson")
_NEEDS = {"label": "expected_ids or relevance", "score": "retrieved_ids"}


def is_json_lines(source: object) -> bool:
    """Whether a source is the path of a file of JSON lines, compressed or not.

    >>> is_json_lines("golden.jsonl.gz"), is_json_lines("run.json"), is_json_lines({})
    (True, False, False)
    """
    return isinstance(source, (str, PathLike)) and base_name(source).endswith(_ENDINGS)


def read_json_lines(path: StrPath, number: str) -> Table:
    """Return ``{query: {document: number}}``, where ``number`` is ``label`` or ``score``.

    Raises FileFormatError for the first line that breaks a rule.
    """
    table: Table = {}
    name_key = None
    for line, entry in _entries(path):
        try:
            name_key = name_key or next((key for key in _NAMES if key in entry), None)
            if name_key is None:
                raise RuleError(f"a line must name its query by one of {', '.join(_NAMES)}", list(entry))
            if name_key not in entry:
                raise RuleError(f"a line must have {name_key!r}, as the first line has", list(entry))
            query = id_of(entry[name_key], name_key)
            if query in table:
                raise RuleError("a query must occur once", query)
            table[query] = _labels(entry) if number == "label" else _scores(entry)
        except RuleError as error:
            raise FileFormatError(path, line, error.rule, f"got {shorten(error.got)}") from None
    if not table:
        raise FileFormatError(path, None, "expected lines of JSON objects", "got an empty file")
    return table


def check_same_judgments(paths: Sequence[StrPath]) -> None:
    """Raise DataError if files have different judgments of a query; those without judgments are passed over."""
    first, *others = paths
    known = read_json_lines(first, "label")
    for path in others:
        if not _has_judgments(path):
            continue
        for query, labels in read_json_lines(path, "label").items():
            if query in known and known[query] != labels:
                raise DataError(
                    f"{path}: files that are compared must have the same judgments, those of query {query!r:.60} "
                    f"differ from {first}; pass the right ones as qrels"
                )


class RuleError(ValueError):
    """A line, or an entry of a file, breaks a rule; ``got`` is the value that breaks it."""

    def __init__(self, rule: str, got: object) -> None:
        super().__init__(rule)
        self.rule, self.got = rule, got


def _has_judgments(path: StrPath) -> bool:
    return any("expected_ids" in entry or "relevance" in entry for _, entry in _entries(path))


def _entries(path: StrPath) -> Iterator[tuple[int, Entry]]:
    """Yield the objects of a file with the numbers of their lines; empty lines are skipped."""
    for first, text in line_chunks(path):
        for line, row in enumerate(text.split(b"\n"), first):
            if not row.strip():
                continue
            try:
                entry = json.loads(row.decode("utf-8"), object_pairs_hook=object_of_pairs)
            except UnicodeDecodeError as error:
                raise FileFormatError(path, line, "text must be UTF-8", f"got byte {row[error.start]:#04x}") from None
            except RuleError as error:
                raise FileFormatError(path, line, error.rule, f"got {shorten(error.got)}") from None
            except (ValueError, RecursionError) as error:
                raise FileFormatError(path, line, "a line must be a JSON object", f"got {error}"[:200]) from None
            if not isinstance(entry, dict):
                raise FileFormatError(path, line, "a line must be a JSON object", f"got {shorten(entry)}")
            yield line, entry


def object_of_pairs(pairs: list[tuple[str, object]]) -> Entry:
    """Return a JSON object as a dict; RuleError if a key occurs twice, of which json would keep the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RuleError("a key must occur once in an object", next(key for key in keys if keys.count(key) > 1))
    return found


def _labels(entry: Entry) -> dict[str, float]:
    """The label of each judged document of a line."""
    relevance = entry.get("relevance")
    if isinstance(relevance, dict):
        if "expected_ids" in entry:
            raise RuleError("a line must not have both expected_ids and relevance by id", list(entry))
        return numbers_by_id(relevance, "relevance")
    judged = "expected_ids" if relevance is None or "expected_ids" in entry else "retrieved_ids"
    if judged not in entry:
        raise RuleError(f"a line must have {_NEEDS['label']}", list(entry))
    names = _ids(entry, judged)
    if relevance is None:
        return dict.fromkeys(names, 1)
    return dict(zip(names, _numbers_for(relevance, "relevance", names, judged), strict=True))


def _scores(entry: Entry) -> dict[str, float]:
    """The score of each retrieved document of a line, from its rank if the line has no scores."""
    if "retrieved_ids" not in entry:
        raise RuleError(f"a line must have {_NEEDS['score']}", list(entry))
    names = _ids(entry, "retrieved_ids")
    if entry.get("scores") is None:
        return {name: -float(rank) for rank, name in enumerate(names, start=1)}
    return dict(zip(names, _numbers_for(entry["scores"], "scores", names, "retrieved_ids"), strict=True))


def _ids(entry: Entry, key: str) -> list[str]:
    values = entry[key]
    if not isinstance(values, list):
        raise RuleError(f"{key} must be a list", values)
    names = [id_of(value, key) for value in values]
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise RuleError(f"{key} must name a document once", twice)
    return names


def _numbers_for(values: object, key: str, names: list[str], of: str) -> list[float]:
    if not isinstance(values, list) or len(values) != len(names):
        rule = f"{key} must be a list with a number for each of the {len(names)} {of}"
        raise RuleError(rule, f"{len(values)} numbers" if isinstance(values, list) else values)
    return [_finite(value, key) for value in values]


def numbers_by_id(table: Mapping[str, object], key: str) -> dict[str, float]:
    """Return ``{document: number}``; RuleError, which names ``key``, for ids and numbers that are none."""
    return {id_of(document, key): _finite(number, key) for document, number in table.items()}


def id_of(value: object, key: str) -> str:
    """Return an id as text; RuleError, which names ``key``, if it is neither text nor an integer."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise RuleError(f"{key} must be text or integers", value)
    text = str(value)
    if not text:
        raise RuleError(f"{key} must not be empty", value)
    if CONTROL.search(text) or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise RuleError(f"{key} must have no control characters and no half of a surrogate pair", value)
    return text


def _finite(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RuleError(f"{key} must be numbers", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RuleError(f"{key} must be finite", value)
    return number


def shorten(value: object) -> str:
    """Return a value as a message shows it."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # an integer of thousands of digits
        return "a longer integer than can be printed"
