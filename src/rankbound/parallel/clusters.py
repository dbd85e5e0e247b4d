"""Dask clusters: workers of this machine (``local:4``) or of any scheduler (``tcp://host:8786``).

A scheduler runs whatever it is sent. That of ``local:N`` accepts connections from its own processes only: they speak
TLS with a certificate that is made for the cluster, kept in memory and never used again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from rankbound.errors import ArgumentError, DataError
from rankbound.packages import CLUSTER, check_packages
from rankbound.parallel.threads import ONE_THREAD

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_WORKERS = 1_000  # processes of one machine
CONNECT = "10s"  # to wait for a scheduler
_RETURN = "60s"  # for a worker that died to come back; on a busy machine, Dask's 15 s can be too few
_FAILURES_ALLOWED = 3  # workers that may die while they run a task before it counts as failed


@contextlib.contextmanager
def open_client(address: str) -> Iterator[tuple[Client, bool]]:
    """A client of the scheduler at an address, and whether its workers are processes of this machine (``local:N``)."""
    check_packages("a cluster", *CLUSTER)
    import dask

    from distributed import Client, LocalCluster, Security

    settings: dict[str, Any] = {
        "distributed.scheduler.allowed-failures": _FAILURES_ALLOWED,
        "distributed.comm.timeouts.connect": CONNECT,
        "distributed.deploy.lost-worker-timeout": _RETURN,  # a local cluster gives up later
    }
    check_address(address)
    kind, _, rest = address.partition(":")
    if kind == "local":
        check_packages(f"cluster {address}", "cryptography")
        settings |= {f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker", "nanny")}
    with dask.config.set(settings):
        if kind == "local":
            with (
                LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=int(rest),
                    threads_per_worker=1,
                    env=ONE_THREAD,
                    silence_logs=50,
                    dashboard_address="127.0.0.1:0",  # any free port: that of Dask may be taken by another cluster
                    scheduler_kwargs={"dashboard": False},
                    security=Security.temporary(),  # type: ignore[no-untyped-call]
                ) as cluster,
                Client(cluster) as client,  # type: ignore[no-untyped-call]
            ):
                yield client, True
            return
        _check_protocol(kind, address)
        try:
            client = Client(address)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise DataError(f"no Dask scheduler answers at {address}: {error}") from error
        except (TypeError, RuntimeError, ImportError) as error:  # certificates or drivers that Dask cannot use
            raise ArgumentError(f"cluster {kind}:// cannot be used here, got {address!r}: {error}") from error
        with client:
            yield client, False


@contextlib.contextmanager
def open_workers(cluster: Any) -> Iterator[tuple[Client | None, bool]]:
    """A client for the workers of an address, or for a client of Dask, and whether they are on this machine.

    None stands for this process.
    """
    if cluster is None:
        yield None, True
    elif isinstance(cluster, str):
        with open_client(cluster) as (client, is_local):
            check_versions(client)
            yield client, is_local
    elif hasattr(cluster, "submit") and hasattr(cluster, "scheduler_info"):
        check_versions(cluster)
        yield cluster, False
    else:
        raise ArgumentError(
            f"cluster must be local:N, the address of a scheduler, or a client of Dask, got {type(cluster).__name__}"
        )


def workers_of(client: Client) -> dict[str, Any]:
    """Return what the scheduler knows about each worker, by its address.

    The client's own ``scheduler_info`` is replaced in the background, now and then, by one without workers.
    """
    return client.sync(client.scheduler.identity)["workers"]  # type: ignore[no-any-return,no-untyped-call,union-attr]


def check_address(address: str) -> None:
    """Raise ArgumentError unless the address has the form of a local cluster or of a scheduler."""
    kind, _, rest = address.partition(":")
    if kind == "local":
        if not re.fullmatch("[0-9]{1,9}", rest) or not 1 <= int(rest) <= MOST_WORKERS:
            raise ArgumentError(f"cluster local:N needs a number of workers up to {MOST_WORKERS}, got {address!r:.60}")
    elif kind not in ("tcp", "tls", "ucx"):
        raise ArgumentError(
            f"cluster must be local:N or the address of a scheduler, as tcp://host:8786, got {address!r:.60}"
        )
    elif not re.fullmatch(r"//[^/]+:[0-9]{1,5}/?", rest):
        raise ArgumentError(f"cluster needs host and port of a scheduler, as tcp://host:8786, got {address!r:.60}")


def _check_protocol(kind: str, address: str) -> None:
    """Refuse a protocol that is not set up, before Dask starts threads that report it in tracebacks of their own."""
    from distributed.security import Security

    settings = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    if kind == "tls" and settings.get("ssl_context") is None:
        raise ArgumentError(
            f"cluster tls:// needs certificates (distributed.comm.tls of Dask's configuration), got {address!r} only"
        )
    if kind == "ucx" and importlib.util.find_spec("distributed_ucxx") is None:
        raise ArgumentError(f"cluster ucx:// needs the package distributed-ucxx, which is missing, got {address!r}")


_PACKAGES = ("rankbound", "numpy", "polars")


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """Versions that must agree between client and workers for the same numbers, and the same hashes of query ids."""
    minor = ".".join(platform.python_version_tuple()[:2])
    return {"python": minor} | {name: _version(name) for name in packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def no_workers() -> DataError:
    """The error for a scheduler that no worker has joined."""
    return DataError("the scheduler has no workers yet; start some with: dask worker ADDRESS --nthreads 1")


def check_versions(client: Client, packages: Sequence[str] = _PACKAGES) -> None:
    """Raise DataError if there is no worker, or if one has another version of a package than this process.

    A worker that ends meanwhile is ignored; what replaces it is checked with its first task.
    """
    found: Mapping[str, Any] = client.run(versions, packages, on_error="return")
    if not found:
        raise no_workers()
    for worker, theirs in sorted(found.items()):
        if isinstance(theirs, OSError):  # it cannot be reached
            continue
        if isinstance(theirs, Exception):  # it cannot load this function
            message = f"every worker must have rankbound {version('rankbound')} installed, got: {theirs}"
            raise DataError(message) from theirs
        compare_versions(versions(packages), theirs, f"worker {worker}")


def compare_versions(ours: Mapping[str, str], theirs: Mapping[str, str], worker: str) -> None:
    """Raise DataError for the first package whose version differs."""
    for name, number in ours.items():
        if theirs.get(name) != number:
            raise DataError(
                f"{worker} has {name} {theirs.get(name)}, the client has {number}: install the same versions everywhere"
            )


def results_of(
    client: Client | None, function: Callable[[Item], Result], items: Sequence[Item], describe: Callable[[Item], str]
) -> Iterator[tuple[int, Result]]:
    """Call a function for each item, in this process or by the workers of a cluster; yield index and result of each.

    Results of workers come in any order. When a worker dies, another one calls the function again. An exception of the
    function is raised here; ``describe`` names the item whose workers died too often.
    """
    if client is None:
        for index, item in enumerate(items):
            yield index, function(item)
        return
    from distributed.scheduler import KilledWorker

    from distributed import as_completed

    ours = versions()
    futures = {
        client.submit(_call, ours, function, item, pure=False, priority=-index): index
        for index, item in enumerate(items)
    }
    try:
        for future in as_completed(list(futures)):  # type: ignore[no-untyped-call]
            index = futures.pop(future)
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise DataError(
                    f"{describe(items[index])}: workers died while they worked on it; they may have run out of memory"
                ) from error
            if error is not None:
                raise error
            yield index, future.result()
            future.release()
    finally:
        client.cancel(list(futures))  # type: ignore[no-untyped-call]


def _call(ours: Mapping[str, str], function: Callable[[Item], Result], item: Item) -> Result:
    """Called by a worker, which may have joined after `check_versions`."""
    from distributed import get_worker

    compare_versions(ours, versions(), f"worker {get_worker().address}")
    return function(item)
