"""What two processes compute together; test_workers.py starts it once, with torchrun, and compares.

usage: program FOLDER: compares all losses, fits all models for 2 epochs with checkpoints in FOLDER/two, and resumes
those in FOLDER/one, which a single process wrote, up to epoch 4; prints JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rankbound.parallel import workers
from tests.distributed.all_losses import compared_losses
from tests.distributed.all_models import fitted


def main():
    folder = Path(sys.argv[1])
    with workers() as group:
        found = {
            "losses": compared_losses(group),
            "two": fitted(folder / "two", 2),
            "resumed": fitted(folder / "one", 4),
            "workers": group.size,
        }
        if group.is_first:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
