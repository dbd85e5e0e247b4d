"""What two processes compute together; test_workers.py starts it once, with torchrun, and compares.

usage: program FOLDER: computes all losses, fits all models for 1 epoch with checkpoints in FOLDER/two, and resumes
those in FOLDER/one, which a single process wrote, up to epoch 2; prints JSON. A single process has computed the same
before, so that all kernels are compiled already.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rankbound.parallel import workers
from tests.distributed.all_losses import values_and_gradients
from tests.distributed.all_models import fitted


def main():
    folder = Path(sys.argv[1])
    with workers() as group:
        found = {
            "losses": values_and_gradients(group),
            "two": fitted(folder / "two", 1),
            "resumed": fitted(folder / "one", 2),
            "workers": group.size,
        }
        if group.is_first:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
