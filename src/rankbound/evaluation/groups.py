"""Groups of queries that the user names: language, intent, length, customer.

A table of query attributes has a row per query and a column per attribute. Every attribute divides the queries into
groups; a query without an entry belongs to the group ``(none)``, so that no query is dropped without a word.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.data.frames import COLUMN_NAMES, as_polars, id_text, is_table
from rankbound.errors import ArgumentError, DataError
from rankbound.io import read_bytes

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


NO_GROUP = "(none)"
MOST_GROUPS = 200  # of one attribute: beyond, it is a number or a name of the query itself


@dataclass(frozen=True)
class QueryGroups:
    """The group of each query by each attribute: ``{attribute: {query as text: group}}``.

    >>> groups = read_groups({"q1": "short", "q2": "long"})
    >>> [(group, queries.tolist()) for _, group, queries in groups.masks(["q1", "q2", "q3"])]
    [('(none)', [False, False, True]), ('long', [False, True, False]), ('short', [True, False, False])]
    """

    attributes: Mapping[str, Mapping[str, str]]

    def masks(self, query_ids: Any) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
        """Attribute, group and which of the queries belong to it, for every group with a query."""
        names = [str(name) for name in np.asarray(query_ids).tolist()]
        for attribute, known in self.attributes.items():
            if not any(name in known for name in names):
                first = (next(iter(known)), names[0]) if known and names else ("", "")
                raise DataError(
                    f"groups: no query of {attribute!r} is in the run (the first is {first[0]!r}, that of the run "
                    f"{first[1]!r}): do the query ids match?"
                )
            groups = np.array([known.get(name, NO_GROUP) for name in names], dtype=np.str_)
            for group in np.unique(groups).tolist():
                yield attribute, group, groups == group


def read_groups(groups: Any) -> QueryGroups:
    """Groups from ``{query: group}``, a frame with a column of query ids, or the path of a csv, parquet or jsonl file.

    Every column but that of the query ids is an attribute.
    """
    if isinstance(groups, QueryGroups):
        return groups
    if isinstance(groups, Mapping) and groups and not is_table(groups):
        return _checked({"group": {str(name): _group_name(group) for name, group in groups.items()}})
    source = str(groups) if isinstance(groups, (str, PathLike)) else "groups"
    frame = _read_lines(groups) if source.endswith((".jsonl", ".ndjson")) else as_polars(groups)
    key = next((name for name in COLUMN_NAMES["qid"] if name in frame.columns), None)
    if key is None:
        raise DataError(f"{source}: a table of groups needs a column {COLUMN_NAMES['qid'][0]}, got {frame.columns}")
    attributes = [name for name in frame.columns if name != key]
    if not attributes:
        raise DataError(f"{source}: a table of groups needs a column of groups next to {key}")
    names = id_text(frame[key]).to_list()
    if frame[key].is_duplicated().any():
        twice = names[int(frame[key].is_duplicated().arg_true()[0])]
        raise DataError(f"{source}: query {twice!r} has more than one row")
    return _checked(
        {
            attribute: {name: _group_name(group) for name, group in zip(names, frame[attribute].to_list(), strict=True)}
            for attribute in attributes
        }
    )


def _read_lines(path: str | PathLike[str]) -> pl.DataFrame:
    import polars as pl

    from rankbound.data.frames import polars_explained

    with polars_explained(path):
        return pl.read_ndjson(io.BytesIO(read_bytes(path)))


def _group_name(group: Any) -> str:
    return NO_GROUP if group is None or group == "" or group != group else str(group)


def _checked(attributes: dict[str, dict[str, str]]) -> QueryGroups:
    for attribute, known in attributes.items():
        count = len(set(known.values()))
        if count > MOST_GROUPS:
            raise ArgumentError(f"groups: {attribute!r} has {count:,} groups, at most {MOST_GROUPS} make sense")
    return QueryGroups(attributes)
