"""Noise of the stochastic losses: a pure function of seed, scores and offsets.

Each call draws from a counter-based generator (Philox) whose key is a digest of the seed, the scores and the offsets.
The same scores meet the same noise, whatever was called before and however many threads run, so that the gradient
belongs to the value and a training run can be repeated; other scores, such as those of the next boosting round, meet
other noise.

>>> scores, offsets = np.array([1.0, 2.0, 0.5], dtype=np.float32), np.array([0, 3])
>>> noise = gumbel_noise(generator_for(0, scores, offsets), scores)
>>> noise.dtype, noise.shape
(dtype('float32'), (3,))
>>> np.array_equal(noise, gumbel_noise(generator_for(0, scores, offsets), scores))
True
>>> np.array_equal(noise, gumbel_noise(generator_for(0, scores + 1, offsets), scores))
False
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.errors import ArgumentError
from rankbound.parallel import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_seed", "generator_for", "gumbel_noise", "logistic_noise", "noise_over"]

_SMALLEST = np.float32(2.0**-25)  # half the spacing of the float32 uniforms: keeps 0 out of the logarithms
_over: ContextVar[Workers | None] = ContextVar("over", default=None)


def generator_for(seed: int, scores: NDArray[Any], offsets: NDArray[Any]) -> Any:
    """Return the generator that belongs to a seed and to these scores, rounded to float32, and offsets.

    Inside `noise_over`, it belongs to the lists of all processes together, and draws the part of this process.
    """
    processes = _over.get()
    if processes is None:
        return _generator(seed, scores, offsets)
    parts = processes.gather(scores)
    sizes = np.concatenate(processes.gather(np.diff(offsets)))
    generator = _generator(seed, np.concatenate(parts), np.concatenate(([0], np.cumsum(sizes))))
    first = sum(map(len, parts[: processes.rank]))
    return _PartGenerator(generator, slice(first, first + len(scores)), sum(map(len, parts)))


@contextmanager
def noise_over(processes: Workers | None) -> Iterator[None]:
    """Draw the noise of a batch whose lists are distributed over processes; all of them must compute the loss."""
    token = _over.set(processes)
    try:
        yield
    finally:
        _over.reset(token)


class _PartGenerator:
    """Draws numbers for the items of all processes and returns those of this process."""

    def __init__(self, generator: np.random.Generator, part: slice, total: int) -> None:
        self._generator, self._part, self._total = generator, part, total

    def standard_exponential(self, _shape: Any, dtype: Any) -> NDArray[Any]:
        return self._generator.standard_exponential(self._total, dtype=dtype)[self._part]

    def random(self, _shape: Any, dtype: Any) -> NDArray[Any]:
        return self._generator.random(self._total, dtype=dtype)[self._part]


def _generator(seed: int, scores: NDArray[Any], offsets: NDArray[Any]) -> np.random.Generator:
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32) + np.float32(0)  # equal scores have equal bytes: turns -0.0 into 0.0
    digest = hashlib.blake2b(int(seed).to_bytes(16, "little", signed=True), digest_size=16)
    digest.update(np.ascontiguousarray(rounded, dtype="<f4").data)
    digest.update(np.ascontiguousarray(offsets, dtype="<i8").data)
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "little")))


def gumbel_noise(generator: np.random.Generator, scores: NDArray[Any]) -> NDArray[Any]:
    """Draw Gumbel(0, 1) noise of the shape and type of the scores: -log of an exponential variable.

    The draws have the precision of float32 and lie between about -5 and 18.
    """
    exponential = generator.standard_exponential(scores.shape, dtype=np.float32)
    noise: NDArray[Any] = -np.log(np.maximum(exponential, _SMALLEST))
    return noise.astype(scores.dtype, copy=False)


def logistic_noise(generator: np.random.Generator, scores: NDArray[Any]) -> NDArray[Any]:
    """Draw Logistic(0, 1) noise of the shape and type of the scores: log(u / (1 - u)) of a uniform u.

    The draws have the precision of float32 and lie between about -18 and 17.
    """
    uniform = np.maximum(generator.random(scores.shape, dtype=np.float32), _SMALLEST)
    noise: NDArray[Any] = np.log(uniform / (1 - uniform))  # a uniform below 1 is at most 1 - 2^-24
    return noise.astype(scores.dtype, copy=False)


def check_seed(seed: int) -> None:
    """Raise ArgumentError unless a seed is an integer of at most 64 bits that is not negative."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise ArgumentError(f"seed must be an integer from 0 to 2^64 - 1, got {seed!r}")
