"""What `rankbound.Protocol.unjudged` asks for: ranges over the labels of unjudged documents, or draws of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rankbound.data.frames import as_polars, find_columns, id_text, is_table
from rankbound.data.sources import to_frame
from rankbound.difficulty.candidates import rule_of
from rankbound.difficulty.unknown.exact import LabelProbabilities
from rankbound.difficulty.unknown.expected import LabelDraws, draw_labels
from rankbound.difficulty.unknown.ranges import LabelRange, label_ranges
from rankbound.difficulty.unknown.ranking import Labels, UnknownRanking, check_grades, grades_of
from rankbound.errors import ArgumentError, DataError
from rankbound.lists import Lists
from rankbound.protocol import EXPLICIT, RANGE_OF, Protocol

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from rankbound.measures import Measure

PROBABILITY = "probability"
_OF_GRADE = "p_"  # before the grade in the name of a column of probabilities
_ROUNDING = 1e-6  # by how much probabilities of a document may add up to more than 1


@dataclass(frozen=True, eq=False)
class Unjudged:
    """Ranges or draws by measure; both are empty where unjudged documents count as not relevant."""

    ranges: Mapping[str, LabelRange] = field(default_factory=dict)
    by_draws: Mapping[str, LabelDraws] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ProbabilityTable:
    """Probabilities of labels by document: a table with qid and docid as text, and a column per grade above 0.

    Without ``grades`` the column ``probability`` is that of any label above 0. ``name`` is what signatures say.
    """

    table: pl.DataFrame
    grades: tuple[float, ...] | None
    name: str

    @property
    def columns(self) -> list[str]:
        """The columns of probabilities."""
        return [name for name in self.table.columns if name not in ("qid", "docid")]


def with_probability_table(protocol: Protocol) -> Protocol:
    """The protocol with the table of probabilities that it names or has."""
    given = protocol.unjudged
    if isinstance(given, (ProbabilityTable, float, int)) or callable(given):
        return protocol
    if isinstance(given, str) and not protocol.names_file_of_unjudged:
        return protocol
    return protocol.changed(unjudged=read_probabilities(given))


def read_probabilities(source: object) -> ProbabilityTable:
    """Read probabilities of labels: ``{query: {document: probability}}``, a table, or the path of one.

    A table has the columns qid, docid and probability, that of a label above 0, or a column per grade, ``p_1``,
    ``p_2``, ...; other columns are ignored.

    >>> read_probabilities({"q": {"a": 0.25}}).table.rows()
    [('q', 'a', 0.25)]
    """
    import polars as pl

    name = fspath(source) if isinstance(source, (str, PathLike)) else EXPLICIT
    where = "unjudged" if name == EXPLICIT else name
    if isinstance(source, Mapping):
        frame = to_frame(source, "score").rename({"score": PROBABILITY})
    elif name == EXPLICIT and not is_table(source):
        raise ArgumentError(f"unjudged must be a table of probabilities or the path of one, got {source!r:.60}")
    else:
        frame = as_polars(source)
    try:
        ids = find_columns(frame.columns, {}, ("qid", "docid"))
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    columns, grades = _columns_of_probabilities(frame.columns, where)
    for column in columns:
        if not frame[column].dtype.is_numeric():
            raise DataError(f"{where}: column {column!r} must hold probabilities, got {frame[column].dtype}")
    table = frame.select(
        id_text(frame[ids["qid"]]).alias("qid"),
        id_text(frame[ids["docid"]]).alias("docid"),
        *(pl.col(column).cast(pl.Float64).fill_null(float("nan")) for column in columns),
    )
    _check_probabilities(table, columns, where)
    kept = columns if grades is None else [column for column, grade in zip(columns, grades, strict=True) if grade > 0]
    above = None if grades is None else tuple(grade for grade in grades if grade > 0)
    return ProbabilityTable(table.select("qid", "docid", *kept), above, name)


def _columns_of_probabilities(names: list[str], where: str) -> tuple[list[str], tuple[float, ...] | None]:
    """The columns of probabilities by ascending grade, and the grades; None for a single one."""
    by_grade = {}
    for name in names:
        if name.startswith(_OF_GRADE):
            try:
                by_grade[float(name.removeprefix(_OF_GRADE))] = name
            except ValueError:
                continue
    if (PROBABILITY in names) == any(grade > 0 for grade in by_grade):
        raise DataError(
            f"{where}: probabilities must be in a column {PROBABILITY!r} or in a column per grade, p_1, p_2, ..., got "
            f"the columns {', '.join(names)}"
        )
    if PROBABILITY in names:
        return [PROBABILITY], None
    if min(by_grade) < 0 or not np.isfinite(list(by_grade)).all():
        raise DataError(f"{where}: grades of columns must be finite and not negative, got {by_grade[min(by_grade)]!r}")
    return [by_grade[grade] for grade in sorted(by_grade)], tuple(sorted(by_grade))


def _check_probabilities(table: pl.DataFrame, columns: list[str], where: str) -> None:
    numbers = table.select(columns).to_numpy()
    sums = numbers.sum(axis=1)
    for wrong, rule, shown in (
        (~((numbers >= 0) & (numbers <= 1)).all(axis=1), "probabilities must be from 0 to 1", numbers),
        (sums > 1 + _ROUNDING, "probabilities of a document must add up to at most 1", sums[:, None]),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            got = next(value for value in shown[row].tolist() if not 0 <= value <= 1)
            raise DataError(f"{where}: {rule}, got {got:g} for {_describe_document(table, row)}")
    twice = table.select("qid", "docid").is_duplicated()
    if twice.any():
        row = int(np.argmax(twice.to_numpy()))
        raise DataError(f"{where}: {_describe_document(table, row)} must have one row, got several")


def _describe_document(table: pl.DataFrame, row: int) -> str:
    return f"document {table['docid'][row]!r} of query {table['qid'][row]!r}"


def with_grades(protocol: Protocol, qrels: Any) -> Protocol:
    """The protocol with the grades of the judgments, where it asks for a range over them."""
    if protocol.unjudged != "range":
        return protocol
    if isinstance(qrels, Lists):
        labels = qrels.labels
    else:
        labels = to_frame(qrels, "label")["label"].unique().to_numpy()
    return protocol.changed(unjudged=RANGE_OF + ",".join(f"{grade:g}" for grade in grades_of(np.asarray(labels))))


def given_grades(protocol: Protocol) -> Labels | None:
    """The grades that a protocol names; None if it names none."""
    if not isinstance(protocol.unjudged, str) or not protocol.unjudged.startswith(RANGE_OF):
        return None
    grades = np.array([float(part) for part in protocol.unjudged.removeprefix(RANGE_OF).split(",")])
    return check_grades(grades.astype(np.int64) if (grades == np.floor(grades)).all() else grades)


def labels_of_unjudged(
    lists: Lists,
    requested: Mapping[str, Measure],
    protocol: Protocol,
    plain: Callable[[Measure], NDArray[np.float64]],
) -> Unjudged:
    """Ranges or draws of the measures, as the protocol asks for; it must not be that unjudged counts as 0.

    ``plain`` gives the values with label 0 for unjudged documents.
    """
    protocol = with_probability_table(protocol)
    if isinstance(protocol.unjudged, str):
        rule = rule_of(protocol.candidates)
        grades = given_grades(protocol)
        found = label_ranges(
            lists,
            requested,
            ties=protocol.ties,
            depth=protocol.depth,
            grades=grades,
            candidates=rule,
            plain=plain,
        )
        return Unjudged(ranges=found)
    ranking = UnknownRanking(lists, protocol.ties, protocol.depth)
    return Unjudged(by_draws=draw_labels(ranking, requested, _probabilities(ranking, lists, protocol.unjudged)))


def _probabilities(ranking: UnknownRanking, lists: Lists, unjudged: object) -> LabelProbabilities:
    """The probabilities of labels above 0 for each unknown document."""
    relevant = lists.labels[lists.labels > 0]
    grades, number = np.unique(relevant, return_counts=True) if len(relevant) else (np.ones(1, np.int64), np.ones(1))
    if isinstance(unjudged, ProbabilityTable):
        rows = _look_up(ranking, lists, unjudged)
        if unjudged.grades is not None:
            rows = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)  # a sum above 1 by rounding
            return LabelProbabilities(rows, _as_labels(unjudged.grades))
        probability = rows[:, 0]
    elif callable(unjudged):
        probability = _call(unjudged, ranking, lists)
    else:
        probability = np.full(len(ranking.unknown), float(cast(float, unjudged)))
    return LabelProbabilities(probability[:, None] * (number / number.sum()), grades)


def _as_labels(grades: tuple[float, ...]) -> NDArray[np.float64] | NDArray[np.int64]:
    """The grades as labels: integers, where they are."""
    values = np.array(grades)
    return values.astype(np.int64) if (values == np.floor(values)).all() else values


def _look_up(ranking: UnknownRanking, lists: Lists, given: ProbabilityTable) -> NDArray[np.float64]:
    import polars as pl

    queries, ids = _unknown_names(ranking, lists)
    wanted = pl.DataFrame({"qid": id_text(pl.Series(queries)), "docid": id_text(pl.Series(ids))})
    found = wanted.join(given.table, on=["qid", "docid"], how="left", maintain_order="left")
    lacking = found[given.columns[0]].is_null()
    if lacking.any():
        first = _describe_document(wanted, int(np.argmax(lacking.to_numpy())))
        raise DataError(
            f"{'unjudged' if given.name == EXPLICIT else given.name}: every returned document without a judgment must "
            f"have a probability, {lacking.sum():,} of {len(wanted):,} have none, such as {first}; a depth leaves out "
            "lower ranks"
        )
    return found.select(given.columns).to_numpy()


def _unknown_names(ranking: UnknownRanking, lists: Lists) -> tuple[Labels, Labels]:
    """The ids of query and document of each unknown document."""
    if lists.ids is None:
        raise ArgumentError("probabilities of documents need runs with ids of their documents")
    queries = np.asarray(lists.query_ids)[ranking.query[ranking.unknown]]
    return queries, np.asarray(lists.ids[ranking.position[ranking.unknown]])


def _call(unjudged: Callable[..., object], ranking: UnknownRanking, lists: Lists) -> NDArray[np.float64]:
    queries, ids = _unknown_names(ranking, lists)
    result = np.asarray(unjudged(queries, ids, ranking.rank[ranking.unknown]))
    if result.dtype.kind not in "biuf" or result.shape not in ((), ids.shape):
        raise ArgumentError(f"unjudged must return a probability for each of {len(ids)} documents, got {result!r:.60}")
    result = np.broadcast_to(result.astype(np.float64), ids.shape)
    wrong = result[~((result >= 0) & (result <= 1))]
    if len(wrong):
        raise ArgumentError(f"probabilities of unjudged documents must be from 0 to 1, got {wrong[0]:g}")
    return result
