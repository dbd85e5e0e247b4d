"""What parallel work shares: threads, processes, Dask clusters, and sums that do not depend on how data are divided."""

from rankbound.parallel.clusters import (
    MOST_WORKERS,
    check_address,
    check_versions,
    no_workers,
    open_client,
    results_of,
    workers_of,
)
from rankbound.parallel.exact_sums import ExactSum, Moments
from rankbound.parallel.processes import Workers, current_workers, rows_of_batch, workers
from rankbound.parallel.threads import ONE_THREAD, cores, physical_memory, set_threads, threads

__all__ = [
    "MOST_WORKERS",
    "ONE_THREAD",
    "ExactSum",
    "Moments",
    "Workers",
    "check_address",
    "check_versions",
    "cores",
    "current_workers",
    "no_workers",
    "open_client",
    "physical_memory",
    "results_of",
    "rows_of_batch",
    "set_threads",
    "threads",
    "workers",
    "workers_of",
]
