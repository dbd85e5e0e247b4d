"""Which commands there are. A command's module is imported when the command is called, so that --help costs little."""

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

__all__ = ["COMMANDS", "Command", "CommandsOnDemand"]


class Command(NamedTuple):
    """Where a command lives, a function or a Typer app of further commands, and what the overview says of it."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "evaluate": Command("rankbound.cli.evaluate", "evaluate", "Measures of runs, plain and bounded by difficulty."),
        "compare": Command(
            "rankbound.cli.compare", "compare", "Is one run better, on which queries, and is it probability?"
        ),
        "bounds": Command("rankbound.cli.bounds", "bounds", "Worst, expected and best value of a measure."),
        "distribution": Command(
            "rankbound.cli.distribution", "distribution", "Distribution of a measure under a random ranking."
        ),
        "weights": Command("rankbound.cli.weights", "weights", "Difficulty weights for the trainer you already have."),
        "train": Command("rankbound.cli.train", "train", "Fit a ranker, with any loss and bounding, and save it."),
        "rank": Command("rankbound.cli.rank", "rank", "Scores of a saved ranker, as a TREC run or a table."),
        "data": Command("rankbound.cli.data", "app", "Data sets: list, get, describe, verify."),
        "reproduce": Command("rankbound.cli.reproduce", "reproduce", "Studies of papers: their numbers beside ours."),
        "report": Command("rankbound.cli.report", "report", "One page: words, tables, figures, every query."),
        "demo": Command("rankbound.cli.demo", "demo", "Two rankers on generated data: what difficulty shows."),
    }
)


class CommandsOnDemand(TyperGroup):
    """A group that knows its commands from the table above and loads one when it is asked for it."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command, imported now."""
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        near = difflib.get_close_matches(cmd_name, COMMANDS, n=1) or list(COMMANDS)
        raise ArgumentError(f"there is no command {cmd_name!r}; did you mean {' or '.join(near)}?")

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The overview, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


def load_command(name: str) -> Any:
    """Import a command and make it one that typer can run."""
    where = COMMANDS[name]
    found = getattr(importlib.import_module(where.module), where.attribute)
    # plain help: rich would take longer to load than everything else together
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return get_group(holder).commands[name]
