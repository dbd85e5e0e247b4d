"""What a person sees while kernels compile: a spinner, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rankbound.cli import output

if TYPE_CHECKING:
    from rankbound.losses import RankingLoss

__all__ = ["ready_kernels"]

_WORTH_A_WORD = 2.0  # seconds: loading takes less


def ready_kernels(*losses: str | RankingLoss) -> None:
    """Compile or load the kernels of these losses before the work begins, and say on stderr if it was compiled."""
    from rankbound.losses import warm_up

    with output.working("getting the loss kernels ready (compiled once, then kept) ..."):
        seconds = warm_up(*losses)
    if seconds > _WORTH_A_WORD:
        typer.echo(f"The loss kernels were compiled in {seconds:.0f} s; later runs load them.", err=True)
