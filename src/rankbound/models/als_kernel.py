"""Kernel of alternating least squares: the vectors of one side, given those of the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from rankbound.losses.compiling import kernel

__all__ = ["solve_side"]


@kernel
def solve_side(
    vectors: Any, others: Any, gram: Any, offsets: Any, codes: Any, weights: Any, ridge: Any, steps: int
) -> None:
    """Improve each row of ``vectors`` in place by conjugate gradient steps on its least squares problem.

    Row u minimizes sum_i w_ui (x·y_i - 1)² + xᵀ G x + ridge_u |x|² over the interactions i of u, where G is the
    weighted Gram matrix of all others. The matrix of the problem, G + ridge_u I + sum_i w_ui y_i y_iᵀ, is never formed.
    """
    count, size = vectors.shape
    for row in prange(count):
        start, end = offsets[row], offsets[row + 1]
        x = vectors[row]
        residual, image = np.zeros(size, np.float32), np.zeros(size, np.float32)
        for a in range(size):
            total = ridge[row] * x[a]
            for b in range(size):
                total += gram[a, b] * x[b]
            residual[a] = -total
        for at in range(start, end):
            y = others[codes[at]]
            product = np.float32(0)
            for a in range(size):
                product += x[a] * y[a]
            factor = weights[at] * (1 - product)
            for a in range(size):
                residual[a] += factor * y[a]
        direction = residual.copy()
        norm = np.float32(0)
        for a in range(size):
            norm += residual[a] * residual[a]
        for _ in range(steps):
            if norm < 1e-20:
                break
            for a in range(size):
                total = ridge[row] * direction[a]
                for b in range(size):
                    total += gram[a, b] * direction[b]
                image[a] = total
            for at in range(start, end):
                y = others[codes[at]]
                product = np.float32(0)
                for a in range(size):
                    product += direction[a] * y[a]
                product *= weights[at]
                for a in range(size):
                    image[a] += product * y[a]
            curvature = np.float32(0)
            for a in range(size):
                curvature += direction[a] * image[a]
            length = norm / curvature
            before, norm = norm, np.float32(0)
            for a in range(size):
                x[a] += length * direction[a]
                residual[a] -= length * image[a]
                norm += residual[a] * residual[a]
            for a in range(size):
                direction[a] = residual[a] + norm / before * direction[a]
