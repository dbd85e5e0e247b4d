"""The table of commands. A command's module is imported when the command runs, so that --help is fast."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from rankbound.errors import ArgumentError


class Command(NamedTuple):
    """The module and attribute of a command (a function, or a Typer app of further commands) and its summary."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "evaluate": Command(
            "rankbound.cli.evaluate", "evaluate", "Measure runs, with and without normalization by difficulty."
        ),
        "compare": Command(
            "rankbound.cli.compare", "compare", "Test whether runs differ, and show on which queries they do."
        ),
        "audit": Command("rankbound.cli.audit", "audit", "Say what a test set can show, and what is wrong with it."),
        "gate": Command("rankbound.cli.gate", "gate", "Say whether a change passes, fails, or needs more queries."),
        "judge": Command("rankbound.cli.judge", "judge", "List the documents to judge next, to decide comparisons."),
        "references": Command(
            "rankbound.cli.references", "references", "Save the scores of reference runs, for standardization."
        ),
        "stability": Command(
            "rankbound.cli.stability", "stability", "Compare normalizations by how reliably they order systems."
        ),
        "bounds": Command("rankbound.cli.bounds", "bounds", "Compute the worst, expected and best value of a measure."),
        "distribution": Command(
            "rankbound.cli.distribution", "distribution", "Compute the distribution of a measure under random ranking."
        ),
        "measures": Command(
            "rankbound.cli.measures", "measures", "List the measures with formula, parameters and source."
        ),
        "check": Command("rankbound.cli.check", "check", "Check your own implementation of a measure."),
        "weights": Command("rankbound.cli.weights", "weights", "Compute difficulty weights for any trainer."),
        "train": Command("rankbound.cli.train", "train", "Train a ranker with any loss and bounding, and save it."),
        "tune": Command("rankbound.cli.tune", "tune", "Choose model, loss and parameters on validation queries."),
        "rank": Command("rankbound.cli.rank", "rank", "Score documents with a saved ranker."),
        "recommend": Command("rankbound.cli.recommend", "recommend", "Recommend items to users, by a saved model."),
        "export": Command("rankbound.cli.export", "export", "Write a saved ranker for search engines and runtimes."),
        "data": Command("rankbound.cli.data", "app", "List, download, describe, verify and split data sets."),
        "reproduce": Command("rankbound.cli.reproduce", "reproduce", "Run a study of a paper, or a study of your own."),
        "store": Command("rankbound.cli.store", "app", "List, export and import the results of studies."),
        "report": Command(
            "rankbound.cli.report", "report", "Write a page with findings, tables, figures and every query."
        ),
        "demo": Command("rankbound.cli.demo", "demo", "Train and compare two rankers on generated data."),
    }
)


class CommandsOnDemand(TyperGroup):
    """A group that takes its commands from the table above and imports each one when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Import and return the command."""
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        near = difflib.get_close_matches(cmd_name, COMMANDS, n=1) or list(COMMANDS)
        raise ArgumentError(f"there is no command {cmd_name!r}; did you mean {' or '.join(near)}?")

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the overview from the table, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


def load_command(name: str) -> Any:
    """Import a command and convert it for typer."""
    command = COMMANDS[name]
    target = getattr(importlib.import_module(command.module), command.attribute)
    # help without rich, which takes longer to import than everything else together
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(target, typer.Typer):
        holder.add_typer(target, name=name)
    else:
        holder.command(name)(target)
    return get_group(holder).commands[name]
