"""The kernels without the compiler: the interpreter checks every index, which compiled code does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def every_kernel(*arguments, **variables):
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("every_kernel.py"), *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=1200,
    )
    return json.loads(done.stdout)


def test_interpreted_kernels_give_what_torch_gives():
    """The other tests of this folder compare compiled kernels with torch; no kernel is compiled here."""
    interpreted = every_kernel("float64", NUMBA_DISABLE_JIT="1")
    references = every_kernel("float64", "reference", NUMBA_DISABLE_JIT="1")
    assert {name for name in interpreted if not name.startswith("factors")} == references.keys()
    for name, results in references.items():
        for mine, theirs in zip(interpreted[name], results, strict=False):  # there is no reference of a hessian
            largest = max(1.0, np.abs(theirs).max(initial=0.0))
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9 * largest, err_msg=name)
    assert all(np.isfinite(array).all() for results in interpreted.values() for array in results)


@pytest.mark.slow  # the compiler takes minutes for all kernels of a type
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_interpreted_kernels_give_what_compiled_ones_give(dtype):
    interpreted, compiled = every_kernel(dtype, NUMBA_DISABLE_JIT="1"), every_kernel(dtype)
    assert interpreted.keys() == compiled.keys()
    for name, results in interpreted.items():
        close = 2e-5 if dtype == "float32" or "factors" in name else 1e-9
        for mine, theirs in zip(results, compiled[name], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=close, atol=close, err_msg=name)
