"""Every public callable under every hostile array: the clean result, or an error of ours that names the argument."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("torch")

import torch

from rankbound.errors import RankboundError

from .callables import ENTRIES, NO_ARRAYS, Entry, public_names
from .variations import CLOSE, EITHER, NOTHING, REFUSED, SAME, VARIATIONS, Variation, same_content


def parts(result: Any) -> Iterator[np.ndarray]:
    """A result as plain arrays, whatever it consists of."""
    if isinstance(result, torch.Tensor):
        yield result.detach().numpy()
    elif isinstance(result, pl.DataFrame):
        for column in result:
            yield column.to_numpy()
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from parts(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from parts(value)
    elif dataclasses.is_dataclass(result):
        for one in (field for field in dataclasses.fields(result) if field.compare):
            yield from parts(getattr(result, one.name))
    elif result is not None:
        yield np.asarray(result)


def equal(first: Any, second: Any, tolerance: float = 0.0) -> bool:
    """Whether two results are the same, by default bit for bit."""
    ours, theirs = list(parts(first)), list(parts(second))
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and (np.array_equal(a, b) or (tolerance > 0 and np.allclose(a, b, tolerance, tolerance)))
        for a, b in zip(ours, theirs, strict=True)
    )


def is_sound(result: Any) -> bool:
    return all(np.isfinite(part).all() for part in parts(result) if part.dtype.kind == "f")


def outcome(call: Callable[[], Any], *names: str) -> Any:
    """A sound result, or None where one of these arguments is refused by name; anything else is a failure."""
    try:
        result = call()
    except RankboundError as error:
        if not any(name in str(error) for name in names):
            raise
        return None
    assert is_sound(result)
    return result


@functools.cache
def clean_result(position: int) -> Any:
    entry = ENTRIES[position]
    return entry.call(**{name: argument.clean.copy() for name, argument in entry.arrays.items()})


def fault(position: int, name: str, variation: Variation) -> str | None:
    """What is wrong with how a callable takes a variation of one of its arrays; None if nothing is."""
    entry = ENTRIES[position]
    argument = entry.arrays[name]
    expect = argument.rule.get(variation.name, variation.expect)
    arrays = {each: other.clean.copy() for each, other in entry.arrays.items()}
    given = variation.make(argument.clean.copy())
    if given is None and variation.name != NOTHING:
        return None
    try:
        result = entry.call(**(arrays | {name: given}))
    except RankboundError as error:
        text = str(error)
        if expect in (SAME, CLOSE):
            return f"refused: {text}"
        if not any(word in text for word in argument.called or (name,)):
            return f"the error does not name the argument: {text}"
        if not any(word in text for word in argument.says):
            return f"the error does not say what it got: {text}"
    except Exception as error:  # whatever it is, it is not ours
        return f"{type(error).__name__}: {str(error)[:150]}"
    else:
        if expect == REFUSED:
            return "taken"
        if expect in (SAME, CLOSE) and not equal(result, clean_result(position), 1e-6 if expect == CLOSE else 0):
            return "another result than that of the clean array"
        if expect == EITHER and not is_sound(result):
            return "a result that is not finite"
    if given is not None and not same_content(given, variation.make(argument.clean.copy())):
        return "the input was changed"
    return None


CASES = [
    pytest.param(position, name, id=f"{entry.name}-{name}")
    for position, entry in enumerate(ENTRIES)
    for name in entry.arrays
]


def variations_of(entry: Entry) -> list[Variation]:
    return [each for each in VARIATIONS.values() if entry.only is None or each.name in entry.only]


def test_every_public_callable_is_tried_or_has_a_reason_not_to_be() -> None:
    tried = {name for entry in ENTRIES for name in entry.covers}
    assert public_names() - tried - set(NO_ARRAYS) == set(), "a new public name needs an entry in callables.py"
    assert (tried | set(NO_ARRAYS)) - public_names() == set()


@pytest.mark.filterwarnings("ignore:.*found no useful split", "ignore::rankbound.errors.InferenceWarning")
@pytest.mark.parametrize(("position", "name"), CASES)
def test_hostile_arrays_give_the_clean_result_or_an_error_of_ours(position: int, name: str) -> None:
    faults = {each.name: fault(position, name, each) for each in variations_of(ENTRIES[position])}
    assert not {variation: wrong for variation, wrong in faults.items() if wrong}
