"""Judgments and runs of ranx without the half minute in which it compiles the function that fills them."""

from __future__ import annotations

import pytest

pytest.importorskip("ranx")

import ranx.data_structures.qrels
import ranx.data_structures.run
from numba import types
from numba.typed import Dict


def create_and_sort(q_ids, doc_ids, scores):
    """The same dict of dicts as that of ranx's function of this name: queries by id, documents by descending score."""
    number = types.int64 if scores[0].dtype.kind == "i" else types.float64
    result = Dict.empty(types.unicode_type, types.DictType(types.unicode_type, number))
    for q_id, documents, values in sorted(zip(q_ids, doc_ids, scores, strict=True), key=lambda query: query[0]):
        ranking = Dict.empty(types.unicode_type, number)
        for document, value in sorted(zip(documents, values, strict=True), key=lambda pair: -pair[1]):
            ranking[str(document)] = value.item()
        result[q_id] = ranking
    return result


def use(monkeypatch) -> None:
    """Have ranx fill its objects with this function during a test."""
    for module in (ranx.data_structures.qrels, ranx.data_structures.run):
        monkeypatch.setattr(module, "create_and_sort", create_and_sort)
