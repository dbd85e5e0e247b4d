"""Measures in Lightning: a callback that logs them for validation and test data, so that training can stop by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rankbound.errors import ArgumentError, DataError
from rankbound.integrations.groups import means_by_group
from rankbound.packages import check_packages, import_package
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from rankbound.evaluation import Evaluation
    from rankbound.integrations.torchmetrics import RankingMetric
    from rankbound.measures.measure import Measure
else:
    check_packages("this integration", "lightning", "torchmetrics", "torch")
    Callback = import_package("lightning.pytorch").Callback
    from rankbound.integrations.torchmetrics import RankingMetric

_QUERIES = ("qid", "indexes", "offsets", "mask")


class RankingCallback(Callback):
    """Log the means of measures over all queries of the validation or test data at the end of each pass over them.

    ``validation_step`` and ``test_step`` return a dict with ``"scores"``, ``"labels"`` and one of ``"qid"``,
    ``"offsets"`` and ``"mask"``, as `RankingMetric.update` takes them. Other entries of the dict are ignored. A mean is
    logged by the name of its measure with ``prefix`` before it, so that ``EarlyStopping("EM(nDCG@10)", mode="max")``
    and ``ModelCheckpoint(monitor="EM(nDCG@10)", mode="max")`` find it. With several data loaders, Lightning's
    ``/dataloader_idx_0`` follows the name. With several processes, the queries of all of them count.

    Parameters
    ----------
    measures:
        Names such as ``"nDCG@10"`` or ``"EM(nDCG@10)"``, one or several.
    prefix:
        What the names in the log start with, such as ``"val/"``.
    protocol, ties, empty, groups:
        As in `RankingMetric`; the means of groups are logged too, and ``monitor="nDCG@10_worst_language"`` stops by
        the worst group.
    prog_bar:
        Show the means in the progress bar too.

    Attributes
    ----------
    evaluations:
        The results of the last pass over the data, one for each data loader, with the values of every query.
    """

    def __init__(
        self,
        measures: str | Measure | Iterable[str | Measure] = ("nDCG@10", "EM(nDCG@10)"),
        protocol: Protocol | None = None,
        *,
        prefix: str = "",
        ties: str | None = None,
        empty: str | None = None,
        groups: Any = None,
        prog_bar: bool = False,
    ) -> None:
        super().__init__()
        # the names of measures are checked here
        self._first = RankingMetric(measures, protocol, ties=ties, empty=empty, groups=groups)
        self._metrics: list[RankingMetric] = []
        self.prefix, self.prog_bar = prefix, prog_bar
        self.evaluations: tuple[Evaluation, ...] = ()

    @property
    def evaluation(self) -> Evaluation:
        """The result of the last pass over the first data loader."""
        if not self.evaluations:
            raise DataError("there is no result yet: validate or test with this callback first")
        return self.evaluations[0]

    # ---- hooks, the same for validation and test data ----------------------------------------------------------------

    def _on_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the queries of the last pass; every process has a metric for each data loader."""
        batches = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
        self._metrics = [self._first.clone().to(pl_module.device) for _ in batches]

    def _on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,  # noqa: ARG002
        outputs: Any,
        inputs: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        dataloader_idx: int = 0,
    ) -> None:
        """Add what the step returned."""
        step = "test_step" if trainer.testing else "validation_step"
        self._metrics[dataloader_idx].update(**_arguments(step, outputs))

    def _on_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Log the means."""
        self.evaluations = tuple(metric.evaluation() for metric in self._metrics)
        self._metrics = []  # the items are not needed any more
        for index, evaluation in enumerate(self.evaluations):
            suffix = f"/dataloader_idx_{index}" if len(self.evaluations) > 1 else ""
            means = evaluation.mean() | means_by_group(evaluation, evaluation.groups)
            means = {f"{self.prefix}{name}{suffix}": mean for name, mean in means.items()}
            pl_module.log_dict(
                means,
                prog_bar=self.prog_bar,
                reduce_fx="max",  # all processes have the same means, of which the maximum is an exact reduction
                sync_dist=True,
                batch_size=1,
                add_dataloader_idx=False,
            )

    on_validation_epoch_start = on_test_epoch_start = _on_epoch_start
    # Lightning calls the hooks by position, so that the names of their arguments are ours
    on_validation_batch_end = on_test_batch_end = _on_batch_end
    on_validation_epoch_end = on_test_epoch_end = _on_epoch_end


def _arguments(step: str, outputs: Any) -> dict[str, Any]:
    """Return the arguments of `RankingMetric.update` in what a step returned."""
    needed = ("scores", "labels")
    if isinstance(outputs, Mapping) and all(name in outputs for name in needed):
        queries = {name: outputs[name] for name in _QUERIES if outputs.get(name) is not None}
        if len(queries) == 1:
            return {name: outputs[name] for name in needed} | queries
    came = f"a dict with {', '.join(map(str, outputs))}" if isinstance(outputs, Mapping) else type(outputs).__name__
    raise ArgumentError(
        f"{step} must return a dict with scores, labels and one of qid, offsets and mask for RankingCallback, "
        f"got {came}"
    )
