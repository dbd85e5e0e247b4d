"""Progress messages while loss kernels are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rankbound.cli import output

if TYPE_CHECKING:
    from rankbound.losses import RankingLoss

__all__ = ["ready_kernels"]

_LOADING_SECONDS = 2.0  # loading compiled kernels takes less


def ready_kernels(*losses: str | RankingLoss) -> None:
    """Compile or load the kernels of these losses before the work begins; report a compilation on stderr."""
    from rankbound.losses import warm_up
    from rankbound.losses.kernel_cache import without_messages

    with without_messages(), output.working("preparing the loss kernels (compiled once, then kept) ..."):
        seconds = warm_up(*losses)
    if seconds > _LOADING_SECONDS:
        typer.echo(f"The loss kernels were compiled in {seconds:.0f} s; later runs load them.", err=True)
