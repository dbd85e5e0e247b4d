"""What the commands that load a saved model check before they do."""

from __future__ import annotations

import json
from pathlib import Path

from rankbound.packages import check_packages


def check_packages_of_model(command: str, folder: str) -> None:
    """Raise MissingPackageError unless the packages of the model in a folder are installed."""
    from rankbound.models.by_name import packages_of

    if name := _read_class(folder):
        check_packages(command, *packages_of(name))


def _read_class(folder: str) -> str:
    """Return the name of a model's class, or "": `load_ranker` reports a folder that is no model, if it can run.

    It needs scikit-learn even for that, so that a folder without a known model counts as one of the simplest models.
    """
    try:
        name = json.loads((Path(folder) / "model.json").read_bytes())["class"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        name = ""
    return name if isinstance(name, str) and name else "LogisticRanker"
