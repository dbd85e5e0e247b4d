"""The entry point: runs a command, and turns what goes wrong into one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from rankbound.cli.commands import CommandsOnDemand
from rankbound.errors import RankboundError

__all__ = ["app", "run"]

BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 2, 130, 141

app = typer.Typer(
    cls=CommandsOnDemand,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from rankbound import __version__

        typer.echo(f"rankbound {__version__}")
        raise typer.Exit


@app.callback(epilog="Every command has --help with an example, and --json for one JSON object on stdout.")
def rankbound(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learning to rank that knows how hard each query is."""


# typer's base of all usage errors, wherever the installed version keeps it
_UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 2 for bad input or usage, 130 when interrupted.

    >>> run(["bounds", "AP", "--n", "2", "--relevant", "1", "--json"])
    {"worst": 0.5, "expected": 0.75, "best": 1.0}
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = get_command(app).main(given or ["--help"], prog_name="rankbound", standalone_mode=False)
        sys.stdout.flush()  # a reader that has gone away is noticed here, not at exit
    except RankboundError as error:
        return _refuse(str(error))
    except _UsageProblem as error:
        return _refuse(_usage_message(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _stop_writing()
    except SystemExit as stop:  # typer's own way out when the reader has gone away
        return _stop_writing() if stop.code else 0
    except MemoryError:
        return _refuse("there is not enough memory for this input")
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return result if isinstance(result, int) else 0


def _refuse(message: str) -> int:
    typer.echo(f"rankbound: {' '.join(message.split())}", err=True)
    return BAD_INPUT


def _usage_message(error: Exception) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        message = "Missing command"
    return f"{message.rstrip('.')}. See '{context.command_path} --help'."


def _stop_writing() -> int:
    """Send what is left to nowhere, so that the interpreter does not stumble over it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
