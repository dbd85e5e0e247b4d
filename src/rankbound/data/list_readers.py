"""The readers behind the constructors of `Lists`, registered when `rankbound.lists` needs the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from rankbound.lists import Lists, register_reader


@register_reader("dicts")
def lists_of_dicts(
    qrels: Mapping[Any, Mapping[Any, Any]], run: Mapping[Any, Mapping[Any, Any]], **policy: Any
) -> Lists:
    """``Lists.from_dicts``."""
    from rankbound.data.judged import from_dicts

    return from_dicts(qrels, run, **policy)


@register_reader("frame")
def lists_of_frame(frame: Any, **columns: Any) -> Lists:
    """``Lists.from_frame``."""
    from rankbound.data.frames import lists_from_frame

    return lists_from_frame(frame, **columns)


@register_reader("trec")
def lists_of_trec(qrels: str | PathLike[str], run: str | PathLike[str], **policy: Any) -> Lists:
    """``Lists.from_trec``."""
    from rankbound.data.trec import lists_from_trec

    return lists_from_trec(qrels, run, **policy)


@register_reader("letor")
def lists_of_letor(path: str | PathLike[str]) -> Lists:
    """``Lists.from_letor``."""
    from rankbound.data.letor import read_letor

    return read_letor(path).lists
