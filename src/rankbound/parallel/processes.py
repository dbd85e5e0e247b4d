"""Processes that fit a model together: `workers` joins those that torchrun started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankbound.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun


@dataclass(frozen=True, eq=False)
class Workers:
    """The processes that fit a model together.

    Attributes
    ----------
    rank:
        The number of this process, from 0 on.
    size:
        The number of processes.
    group:
        The process group of torch.distributed; None for a single process.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def part(self, work: NDArray[Any]) -> slice:
        """Return the entries (queries, users) of this process: a contiguous part with about the same work as others.

        >>> import numpy as np
        >>> [Workers(rank, 2).part(np.array([5, 1, 1, 3])) for rank in range(2)]
        [slice(0, 1, None), slice(1, 4, None)]
        """
        import numpy as np

        ends = np.cumsum(work)
        total = float(ends[-1]) if len(ends) else 0.0
        # an entry belongs to the process in whose part of the total work its middle lies
        owner = np.minimum((ends - np.asarray(work) / 2) * self.size // max(total, 1e-300), self.size - 1)
        first, last = np.searchsorted(owner, (self.rank, self.rank + 1))
        return slice(int(first), int(last))

    def sum(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of the arrays of all processes, which have one shape and type."""
        import torch

        total = torch.from_numpy(array.copy())
        torch.distributed.all_reduce(total, group=self.group)
        return total.numpy()  # type: ignore[no-any-return]

    def gather(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the one-dimensional arrays of all processes, which may have different lengths."""
        import numpy as np

        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = len(array)
        ends = np.cumsum(self.sum(sizes))
        joined = np.zeros(ends[-1], array.dtype)
        joined[ends[self.rank] - len(array) : ends[self.rank]] = array
        return np.split(self.sum(joined), ends[:-1])


_current: ContextVar[Workers | None] = ContextVar("workers", default=None)


def current_workers() -> Workers | None:
    """Return the processes that fit models together here; None outside `workers`, and for a single process."""
    return _current.get()


@contextmanager
def workers() -> Iterator[Workers]:
    """Fit models together with the other processes of torchrun inside this block.

    Every process runs the same program with the same data. Inside the block, ``fit`` of neural rankers and of
    `MatrixFactorization` splits every batch by query or user: each process computes the gradient of its part, and all
    of them make the same step. The model is, up to rounding, that of a single process, whatever their number. Files
    that a program writes itself should be written by the first process only. Without torchrun there is one process,
    and nothing changes. If torch.distributed is initialized already, its processes are used.

    >>> with workers() as group:
    ...     group.rank, group.size
    (0, 1)
    """
    if not _is_initialized() and (
        not all(os.environ.get(name) for name in _VARIABLES) or os.environ["WORLD_SIZE"] == "1"
    ):
        yield Workers()
        return
    import torch.distributed

    own = not _is_initialized()
    try:
        if own:
            torch.distributed.init_process_group("gloo")
        gloo = torch.distributed.get_backend() == "gloo"
        group = torch.distributed.group.WORLD if gloo else torch.distributed.new_group(backend="gloo")
        joined = Workers(torch.distributed.get_rank(group), torch.distributed.get_world_size(group), group)
        token = _current.set(joined if joined.size > 1 else None)
        try:
            yield joined
        finally:
            _current.reset(token)
    except RuntimeError as error:
        if "gloo" not in str(error) and not isinstance(error, torch.distributed.DistError):
            raise
        first = str(error).splitlines()[0]
        raise DataError(
            f"the connection to another worker was lost ({first}); start the same command again to resume from the "
            "checkpoint"
        ) from error
    finally:
        if own and _is_initialized():
            torch.distributed.destroy_process_group()


def _is_initialized() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
