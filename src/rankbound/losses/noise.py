"""Noise of the stochastic losses: a pure function of seed, scores and offsets, computed on the device of the scores.

Each call draws from a counter-based generator (Philox) whose key is a digest of the seed, the scores and the offsets.
The same scores meet the same noise, whatever was called before and however many threads run, so that the gradient
belongs to the value and a training run can be repeated; other scores, such as those of the next boosting round, meet
other noise.

On other devices than the CPU the draws have the same distributions but are other draws: the digest here reads the
scores one after another, which a device cannot do fast, and a copy to the host would make it wait. There every score is
hashed with its position, and the sum of these hashes, the seed and the offsets are the key of a counter-based
generator: the finalizer of SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators) of
key + counter * gamma, in 64-bit integers that wrap around.

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
from rankbound.losses.lazy_torch import torch
from rankbound.parallel import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from rankbound.losses.padded import Layout

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


# ---- tensors ---------------------------------------------------------------------------------------------------------

_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64


def noise_for(seed: int, scores: Tensor, layout: Layout) -> HostNoise | DeviceNoise:
    """The draws that belong to a seed and to these scores."""
    return (HostNoise if scores.device.type == "cpu" else DeviceNoise)(seed, scores, layout)


class HostNoise:
    """The draws of `rankbound.losses.noise`, for scores on the CPU."""

    def __init__(self, seed: int, scores: Tensor, layout: Layout) -> None:
        self._scores = scores.numpy(force=True)
        self._generator = generator_for(seed, self._scores, layout.plan.offsets)

    def gumbel(self) -> Tensor:
        """Draw Gumbel(0, 1) noise of the shape and type of the scores."""
        return torch.from_numpy(gumbel_noise(self._generator, self._scores))

    def logistic(self) -> Tensor:
        """Draw Logistic(0, 1) noise of the shape and type of the scores."""
        return torch.from_numpy(logistic_noise(self._generator, self._scores))

    def uniform(self) -> Tensor:
        """Draw uniform numbers from 0 to 1, in float32."""
        return torch.from_numpy(self._generator.random(len(self._scores), dtype=np.float32))


class DeviceNoise:
    """Draws on the device of the scores; every call of a method draws anew."""

    def __init__(self, seed: int, scores: Tensor, layout: Layout) -> None:
        self._dtype = scores.dtype
        rounded = scores.detach().float() + 0.0  # turns -0.0 into 0.0
        bits = rounded.view(torch.int32).long()
        self._counter = torch.arange(len(scores), device=scores.device)
        offsets = np.ascontiguousarray(layout.plan.offsets, dtype="<i8").tobytes()
        digest = hashlib.blake2b(offsets, digest_size=8).digest()
        self._key = _mixed(_mixed(bits + _mixed(self._counter)).sum() + _signed(int(seed)))
        self._key = _mixed(self._key + _signed(int.from_bytes(digest, "little")))

    def uniform(self) -> Tensor:
        """Draw uniform numbers from 0 to 1, in float32: 24 bits each."""
        drawn = _mixed(self._key + (self._counter + 1) * _signed(_GAMMA))
        self._key = _mixed(self._key + _signed(_FIRST))
        return _shifted(drawn, 40).float() * 2.0**-24

    def gumbel(self) -> Tensor:
        """Draw Gumbel(0, 1) noise of the shape and type of the scores."""
        exponential = -torch.log1p(-self.uniform())
        return -torch.log(exponential.clamp(min=float(_SMALLEST))).to(self._dtype)

    def logistic(self) -> Tensor:
        """Draw Logistic(0, 1) noise of the shape and type of the scores."""
        uniform = self.uniform().clamp(min=float(_SMALLEST))
        return torch.log(uniform / (1 - uniform)).to(self._dtype)


def _signed(number: int) -> int:
    """A number from 0 to 2^64 - 1 as a signed one with the same bits."""
    return number - 2**64 if number >= 2**63 else number


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right of 64-bit integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64."""
    x = (x ^ _shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(_SECOND)
    return x ^ _shifted(x, 31)
