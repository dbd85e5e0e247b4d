"""The entry point: run a command and turn errors into one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from typer.main import get_command

from rankbound.cli.commands import CommandsOnDemand
from rankbound.errors import ArgumentError, RankboundError
from rankbound.packages import MissingPackageError

BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
_MOST_THREADS = 1_024  # of polars

app = typer.Typer(
    cls=CommandsOnDemand,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        from rankbound import __version__
        from rankbound.kernels import active

        typer.echo(f"rankbound {__version__} (compiled kernels: {active()})")
        raise typer.Exit


@app.callback(epilog="Every command has --help with an example, and --json for one JSON object on stdout.")
def rankbound(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--module", metavar="NAME", help="Import a module or .py file first, such as one that defines measures."
        ),
    ] = None,
) -> None:
    """Learning to rank that knows how hard each query is."""
    if modules:
        from rankbound.cli.user_code import import_module

        for name in modules:
            import_module(name)


# typer's base of all usage errors, wherever the installed version keeps it
_UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    It is 0, 1 if `check` finds a disagreement, 2 for bad input or usage, 130 after Ctrl-C, and 128 plus the number of a
    signal that ended the command.

    >>> run(["bounds", "AP", "--n", "2", "--relevant", "1", "--json"])
    {"worst": 0.5, "expected": 0.75, "best": 1.0}
    0
    """
    _ready_streams()
    with _orderly_end() as signals:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
    if signals or code == INTERRUPTED:
        _say("interrupted")
    _discard_what_cannot_be_written()
    return 128 + signals[0] if signals else code


def _run(arguments: list[str]) -> int:
    try:
        _check_environment()
        result = get_command(app).main(
            arguments or ["--help"], prog_name="rankbound", standalone_mode=False, obj=tuple(arguments)
        )
        sys.stdout.flush()  # raises BrokenPipeError here, not at exit, if nobody reads
    except (RankboundError, MissingPackageError) as error:
        return _refuse(str(error))
    except _UsageProblem as error:
        return _refuse(_usage_message(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _stop_writing()
    except SystemExit as stop:  # raised by typer if nobody reads
        return _stop_writing() if stop.code else 0
    except MemoryError:
        return _refuse("not enough memory for this input")
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return result if isinstance(result, int) else 0


def _check_environment() -> None:
    """Refuse a number of threads at which polars would fail with a traceback, or start thousands and hang."""
    value = os.environ.get("POLARS_MAX_THREADS")
    if value is not None and not (re.fullmatch("[0-9]{1,9}", value) and 0 < int(value) <= _MOST_THREADS):
        raise ArgumentError(
            f"POLARS_MAX_THREADS must be between 1 and {_MOST_THREADS} or not be set, got {value!r:.60}"
        )


def _refuse(message: str) -> int:
    _say(message)
    return BAD_INPUT


def _say(message: str) -> None:
    from rankbound.report.safe_text import escape_controls

    with contextlib.suppress(OSError):  # stderr may be closed or full
        typer.echo(escape_controls(f"rankbound: {' '.join(message.split())}"), err=True)


@contextlib.contextmanager
def _orderly_end() -> Iterator[list[int]]:
    """Handle SIGTERM and SIGHUP, from batch systems and closed terminals, like Ctrl-C.

    Yield the list of the signals that were received.
    """
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        wanted = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
        numbers = [number for number in wanted if number and signal.getsignal(number) is signal.SIG_DFL]
        before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ready_streams() -> None:
    """Replace closed streams by the null device, and print any text in any locale.

    Otherwise a file that is opened later could get the descriptor of standard output and be printed into.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names with lone surrogates become valid JSON
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _usage_message(error: Exception) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the complete help
        message = "Missing command"
    return f"{message.rstrip('.')}. See '{context.command_path} --help'."


def _discard_what_cannot_be_written() -> None:
    """Python would try to write it again at exit, as on a full disk, and change the exit code to 120 if that fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stop_writing() -> int:
    """Discard the remaining output, so that flushing it at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
