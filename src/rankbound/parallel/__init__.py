"""What parallel work shares: threads, processes, and Dask clusters."""

from rankbound.parallel.clusters import (
    MOST_WORKERS,
    check_address,
    check_versions,
    no_workers,
    open_client,
    open_workers,
    results_of,
    workers_of,
)
from rankbound.parallel.modules import import_modules, module_digests
from rankbound.parallel.processes import Workers, current_workers, workers
from rankbound.parallel.threads import ONE_THREAD, cores, physical_memory, set_threads, thread_budget, threads

__all__ = [
    "MOST_WORKERS",
    "ONE_THREAD",
    "Workers",
    "check_address",
    "check_versions",
    "cores",
    "current_workers",
    "import_modules",
    "module_digests",
    "no_workers",
    "open_client",
    "open_workers",
    "physical_memory",
    "results_of",
    "set_threads",
    "thread_budget",
    "threads",
    "workers",
    "workers_of",
]
