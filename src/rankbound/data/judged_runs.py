"""Judgments with the runs of many systems, as a track of TREC collects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from rankbound.data.set_files import plain_name
from rankbound.errors import DataError


@dataclass(frozen=True)
class JudgedRuns:
    """The files of judgments and runs: ``rankbound.evaluate(data.qrels, data.runs, ["nDCG@10"])`` evaluates them.

    ``qrels`` is the path of the judgments, and ``runs`` has the path of each run by the name of its system.
    """

    qrels: Path
    runs: Mapping[str, Path]

    @classmethod
    def in_folder(cls, qrels: Path, folder: Path) -> Self:
        """Return the judgments with all runs of a folder; a run is named as its file, without .gz or .zst."""
        runs = {plain_name(file): file for file in sorted(folder.iterdir()) if file.is_file()}
        if not runs:
            raise DataError(f"{folder}: must contain runs, got an empty folder")
        return cls(qrels, MappingProxyType(runs))

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"JudgedRuns(qrels={self.qrels.name!r}, runs={len(self)})"
