"""``python -m rankbound``: the command line, for interpreters and launchers such as torchrun."""

from __future__ import annotations

import sys

from rankbound.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
