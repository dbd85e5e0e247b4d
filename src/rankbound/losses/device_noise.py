"""Noise of the losses in torch operations: a pure function of seed, scores and offsets, computed on the device.

On the CPU the draws are those of `rankbound.losses.noise`, bit by bit. On other devices they have the same
distributions but are other draws: the digest there reads the scores one after another, which a device cannot do fast,
and a copy to the host would make it wait. Here every score is hashed with its position, and the sum of these hashes,
the seed and the offsets are the key of a counter-based generator: the finalizer of SplitMix64 (Steele, Lea & Flood,
Fast splittable pseudorandom number generators) of key + counter * gamma, in 64-bit integers that wrap around.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankbound.losses.noise import generator_for, gumbel_noise, logistic_noise

if TYPE_CHECKING:
    from rankbound.losses.buckets import Layout

__all__ = ["DeviceNoise", "HostNoise", "noise_for"]

_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SMALLEST = 2.0**-25  # half the spacing of the uniforms: keeps 0 out of the logarithms


def noise_for(seed: int, scores: Any, layout: Layout) -> HostNoise | DeviceNoise:
    """The draws that belong to a seed and to these scores."""
    return (HostNoise if scores.device.type == "cpu" else DeviceNoise)(seed, scores, layout)


class HostNoise:
    """The draws of `rankbound.losses.noise`, for scores on the CPU."""

    def __init__(self, seed: int, scores: Any, layout: Layout) -> None:
        self._scores = scores.numpy(force=True)
        self._generator = generator_for(seed, self._scores, layout.plan.offsets)

    def gumbel(self) -> Any:
        """Draw Gumbel(0, 1) noise of the shape and type of the scores."""
        return torch.from_numpy(gumbel_noise(self._generator, self._scores))

    def logistic(self) -> Any:
        """Draw Logistic(0, 1) noise of the shape and type of the scores."""
        return torch.from_numpy(logistic_noise(self._generator, self._scores))

    def uniform(self) -> Any:
        """Draw uniform numbers from 0 to 1, in float32."""
        return torch.from_numpy(self._generator.random(len(self._scores), dtype=np.float32))


class DeviceNoise:
    """Draws on the device of the scores; every call of a method draws anew."""

    def __init__(self, seed: int, scores: Any, layout: Layout) -> None:
        self._dtype = scores.dtype
        rounded = scores.detach().float() + 0.0  # turns -0.0 into 0.0
        bits = rounded.view(torch.int32).long()
        self._counter = torch.arange(len(scores), device=scores.device)
        offsets = np.ascontiguousarray(layout.plan.offsets, dtype="<i8").tobytes()
        digest = hashlib.blake2b(offsets, digest_size=8).digest()
        self._key = _mixed(_mixed(bits + _mixed(self._counter)).sum() + _signed(int(seed)))
        self._key = _mixed(self._key + _signed(int.from_bytes(digest, "little")))

    def uniform(self) -> Any:
        """Draw uniform numbers from 0 to 1, in float32: 24 bits each."""
        drawn = _mixed(self._key + (self._counter + 1) * _signed(_GAMMA))
        self._key = _mixed(self._key + _signed(_FIRST))
        return _shifted(drawn, 40).float() * 2.0**-24

    def gumbel(self) -> Any:
        """Draw Gumbel(0, 1) noise of the shape and type of the scores."""
        exponential = -torch.log1p(-self.uniform())
        return -torch.log(exponential.clamp(min=_SMALLEST)).to(self._dtype)

    def logistic(self) -> Any:
        """Draw Logistic(0, 1) noise of the shape and type of the scores."""
        uniform = self.uniform().clamp(min=_SMALLEST)
        return torch.log(uniform / (1 - uniform)).to(self._dtype)


def _signed(number: int) -> int:
    """A number from 0 to 2^64 - 1 as a signed one with the same bits."""
    return number - 2**64 if number >= 2**63 else number


def _shifted(x: Any, bits: int) -> Any:
    """Logical shift to the right of 64-bit integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Any) -> Any:
    """The finalizer of SplitMix64."""
    x = (x ^ _shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(_SECOND)
    return x ^ _shifted(x, 31)
