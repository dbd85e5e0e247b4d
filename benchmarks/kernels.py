"""Whether the kernels of the losses became slower: `python -m benchmarks.kernels --before DIR [LOSS...]`.

DIR is another checkout of this repository, of the state to compare with. A process of each of the two computes the same
losses of the same lists, gradients included, on one thread. They take turns, so that a machine that is slower for a
while is so for both, and the best run of each counts. Old checkouts compile first, which is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.first_use import chosen
from rankbound.errors import ArgumentError

__all__ = ["SIZES", "TOLERANCE", "Comparison", "compare_kernels", "main"]

TOLERANCE = 0.05
SIZES = ((8, 125), (40, 120), (10, 500), (3, 2000))  # queries and their items
_HERE = Path(__file__).resolve().parent.parent
_TURN_SECONDS = 0.03
_MORE_TURNS = 3  # times as many, where the first turns show a difference

_SERVE = """
import json, sys, time
from pathlib import Path
import numpy as np
import rankbound
import torch
from rankbound.losses import get_loss, gradient_and_hessian, set_threads

if not Path(rankbound.__file__).is_relative_to(sys.argv[1]):
    sys.exit(f"{sys.argv[1]} should be used, but Python has found {rankbound.__file__}")
set_threads(1)
torch.set_num_threads(1)
work = None
for line in sys.stdin:
    order = json.loads(line)
    try:
        if "loss" in order:
            name, options = order["loss"]
            queries, items = order["size"]
            random = np.random.default_rng(queries * items)
            labels = random.choice([0, 0, 0, 0, 1, 2], queries * items).astype(np.float64)
            scores = random.normal(size=queries * items).astype(np.float32)
            offsets, loss = np.arange(queries + 1) * items, get_loss(name, **options)
            tensor = torch.from_numpy(scores).requires_grad_()
            if order["hessian"]:
                work = lambda: gradient_and_hessian(loss, scores, labels, offsets)
            else:
                work = lambda: torch.autograd.grad(loss(tensor, labels, offsets), tensor)
            work()
            answer = 0
        else:
            best, used = float("inf"), 0.0
            while used < order["seconds"]:
                start = time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                best, used = min(best, seconds), used + seconds
            answer = best
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Comparison:
    """Seconds of one loss of one size in both checkouts."""

    loss: str
    queries: int
    items: int
    with_hessian: bool
    before: float
    now: float

    @property
    def ratio(self) -> float:
        """Now divided by before: above 1 is slower."""
        return self.now / self.before

    @property
    def is_slower(self) -> bool:
        """Whether the ratio exceeds 1 by more than the tolerance."""
        return self.ratio > 1 + TOLERANCE


class _Checkout:
    """A process that uses the losses of one checkout."""

    def __init__(self, folder: Path, cache: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "NUMBA_CACHE_DIR": cache}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder)], env=environment, cwd=folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def send(self, order: dict[str, Any]) -> None:
        """Have the process do something; `receive` waits for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def receive(self) -> float | str:
        """A number, or the message of an error."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ArgumentError("a process that computes losses has ended, see above")
        answer: float | str = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def compare_kernels(
    before: Path, losses: Sequence[str] = (), turns: int = 7, on_result: Callable[[Comparison | str], None] = print
) -> list[Comparison]:
    """Compare the checkout in a folder with this one, by the public names of the package alone.

    ``on_result`` gets each comparison, or a line about one that could not be made because one of the checkouts lacks
    the loss.
    """
    if not (before / "src" / "rankbound" / "losses").is_dir():
        raise ArgumentError(f"--before must be a checkout of rankbound, which has src/rankbound/losses, got {before}")
    cases = chosen(losses)
    results = []
    with ExitStack() as stack:
        checkouts = []
        for folder in (before, _HERE):
            cache = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            checkouts.append(_Checkout(folder, cache))
            stack.callback(checkouts[-1].close)
        for name, case in cases.items():
            for with_hessian in (False, True):
                for size in SIZES:
                    for checkout in checkouts:  # both compile at the same time
                        checkout.send({"loss": case, "size": size, "hessian": with_hessian})
                    answers = [checkout.receive() for checkout in checkouts]
                    if errors := [answer for answer in answers if isinstance(answer, str)]:
                        kind = ", with hessian" if with_hessian else ""
                        on_result(f"{name}{kind}: left out, {errors[0]}")
                        break
                    results.append(_timed(checkouts, turns, name, size, with_hessian))
                    on_result(results[-1])
    return results


def _timed(
    checkouts: Sequence[_Checkout], turns: int, name: str, size: tuple[int, int], with_hessian: bool
) -> Comparison:
    best = [float("inf")] * len(checkouts)
    for more in range(1 + _MORE_TURNS):
        for _ in range(turns):
            for i, checkout in enumerate(checkouts):
                checkout.send({"seconds": _TURN_SECONDS})
                best[i] = min(best[i], float(checkout.receive()))
        comparison = Comparison(name, *size, with_hessian, *best)
        if not comparison.is_slower or more == _MORE_TURNS:
            break
    return comparison


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 where a kernel became slower, and 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels",
        description="Times of the losses, one thread, in this checkout and in another one that take turns. The exit "
        f"code is 1 if a loss takes more than {TOLERANCE:.0%} longer than before.",
    )
    parser.add_argument("losses", metavar="LOSS", nargs="*", help="for example nDCG or lambda-AP (default: all)")
    parser.add_argument("--before", metavar="DIR", required=True, help="the checkout to compare with")
    parser.add_argument("--turns", metavar="N", type=int, default=7, help="turns of each checkout (default: 7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error(f"--turns must be at least 1, got {options.turns}")
    messages: list[str] = []

    def report(result: Comparison | str) -> None:
        if isinstance(result, str):
            messages.append(result)
        if not options.json:
            sys.stdout.write((result if isinstance(result, str) else _line(result)) + "\n")
            sys.stdout.flush()

    if not options.json:
        sys.stdout.write(f"{'loss and gradient, one thread':44}{'before':>10}{'now':>10}{'ratio':>8}\n")
    try:
        results = compare_kernels(Path(options.before).resolve(), options.losses, options.turns, report)
    except ArgumentError as error:
        sys.stderr.write(f"benchmarks.kernels: {error}\n")
        return 2
    slower = [result for result in results if result.is_slower]
    if options.json:
        rows = [{**asdict(result), "ratio": result.ratio} for result in results]
        sys.stdout.write(json.dumps({"tolerance": TOLERANCE, "kernels": rows, "left_out": messages}) + "\n")
    else:
        middle = sorted(result.ratio for result in results)[len(results) // 2] if results else float("nan")
        sys.stdout.write(f"{len(results)} compared, {len(slower)} slower; median ratio {middle:.3f}\n")
    return 1 if slower else 0


def _line(result: Comparison) -> str:
    name = f"{result.loss}{', with hessian' if result.with_hessian else ''}, {result.queries} x {result.items}"
    times = "".join(f"{seconds * 1e6:8.0f}us" for seconds in (result.before, result.now))
    return f"{name:44}{times}{result.ratio:8.2f}{'  slower' if result.is_slower else ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
