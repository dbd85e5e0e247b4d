"""The kernels without the compiler: the interpreter checks every index, which compiled code does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def every_kernel(dtype, **variables):
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("every_kernel.py"), dtype],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=1200,
    )
    return json.loads(done.stdout)


# the code is the same for both types, and the compiler takes a minute for each of them
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_interpreted_kernels_give_what_compiled_ones_give(dtype):
    interpreted, compiled = every_kernel(dtype, NUMBA_DISABLE_JIT="1"), every_kernel(dtype)
    assert interpreted.keys() == compiled.keys()
    for name, results in interpreted.items():
        close = 2e-5 if dtype == "float32" or "factors" in name else 1e-9
        for mine, theirs in zip(results, compiled[name], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=close, atol=close, err_msg=name)
