"""An evaluator of sentence-transformers that reports any measure with confidence intervals."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbound.errors import ArgumentError, DataError
from rankbound.evaluation import Evaluation, evaluate_lists
from rankbound.evaluation.alignment import align_evaluations
from rankbound.evaluation.comparison import Comparison, compare
from rankbound.evaluation.group_tests import group_means
from rankbound.evaluation.inference import Inference
from rankbound.integrations.groups import means_by_group, name_of_group
from rankbound.integrations.sentence_transformers.samples import RerankingSamples
from rankbound.integrations.sentence_transformers.scoring import model_scores
from rankbound.io import atomic_write
from rankbound.measures import Measure, parse_measures
from rankbound.packages import import_package
from rankbound.protocol import Protocol, as_protocol

if TYPE_CHECKING:
    import polars as pl

    from rankbound.lists import Lists

_DEFAULT_MEASURES = ("nDCG@10", "EM(nDCG@10)", "AP", "RR@10")
logger = logging.getLogger(__name__)


class _Row(NamedTuple):
    """A row of the results; the names are the columns of the CSV file."""

    run: str
    measure: str
    mean: float
    low: float
    high: float
    queries: int


class RankingEvaluator:
    """Measures with confidence intervals as an evaluator of sentence-transformers, for its trainers or on its own.

    ``RankingEvaluator(samples)(model)`` returns the mean of each measure over the queries, ``"nDCG@10"``, the ends of
    its confidence interval, ``"nDCG@10_low"`` and ``"nDCG@10_high"``, and, where the samples have a first stage, its
    mean, ``"base_nDCG@10"``. ``evaluation`` and ``per_query`` then hold the values of the queries.

    Parameters
    ----------
    samples:
        As for the library's ``CrossEncoderRerankingEvaluator``: dicts with ``query``, ``positive`` and either
        ``negative`` or ``documents``, which is then the ranking of a first stage. Or with graded labels: ``query``,
        ``documents`` and ``labels``. A dict of samples gives the queries their ids.
    measures:
        Names such as ``"nDCG@10"`` and ``"EM(nDCG@10)"``; the candidates of a query are the documents of its sample.
    primary_measure:
        The measure that selects the best model, as ``primary_metric``; by default the first one.
    name:
        Put before the names of the results and into those of files, for several evaluators in one training.
    inference:
        How intervals and p-values are computed, see `rankbound.Inference`.
    protocol:
        How the queries are evaluated, see `rankbound.Protocol`; ``empty`` replaces its field.
    empty:
        Queries without a relevant document: leave them out (``skip``), or count them as ``zero`` or ``one``.
    groups:
        The groups of the queries, by the keys of the samples (numbers for a list), as in `rankbound.evaluate`. The
        results then have the mean of every group, ``"nDCG@10_language=de"``, and the worst of each attribute,
        ``"nDCG@10_worst_language"``; ``evaluation.by_group`` has their intervals and tests.
    always_rerank_positives:
        Also rank relevant documents that the first stage missed. If False, they count as relevant documents that the
        model did not return, as in trec_eval. (The library's evaluator leaves them out, which gives higher values.)
    prompt_name, batch_size, show_progress_bar:
        Passed to the model; the prompt to cross-encoders only.
    write_csv:
        In the folder that the trainer names, write ``RankingEvaluator_NAME_results.csv``, to which every evaluation
        adds a row per measure, and ``RankingEvaluator_NAME_queries_EPOCH_STEPS.csv``, with a row per query.

    Models are cross-encoders, whose outputs are compared before any activation function, because a sigmoid in 32 bits
    makes ties of high scores, or encoders with ``encode_query``, ``encode_document`` and ``similarity``. The evaluator
    is also an instance of the library's ``BaseEvaluator``. A measure that no sample has a value for raises DataError
    when the evaluator is created.
    """

    def __init__(
        self,
        samples: Mapping[Any, Mapping[str, Any]] | Iterable[Mapping[str, Any]],
        measures: Iterable[str | Measure] | str | Measure = _DEFAULT_MEASURES,
        *,
        primary_measure: str | Measure | None = None,
        name: str = "",
        inference: Inference | None = None,
        protocol: Protocol | None = None,
        empty: str | None = None,
        groups: Any = None,
        always_rerank_positives: bool = True,
        prompt_name: str | None = None,
        batch_size: int = 64,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        _join_library(self)
        self.measures = parse_measures(measures)
        if standardized := [name for name, measure in self.measures.items() if measure.is_standardized]:
            raise ArgumentError(f"measures must not need reference runs, as STD does, got {', '.join(standardized)}")
        self.primary_measure = str(next(iter(self.measures)) if primary_measure is None else primary_measure)
        if self.primary_measure not in self.measures:
            raise ArgumentError(
                f"primary_measure must be one of {', '.join(self.measures)}, got {self.primary_measure!r}"
            )
        self.name, self.inference = name, inference or Inference()
        self.protocol = as_protocol(protocol, {} if empty is None else {"empty": empty})
        self.primary_metric = self._key(self.primary_measure)
        self.greater_is_better = not self.measures[self.primary_measure].is_lower_better
        self.always_rerank_positives, self.write_csv = always_rerank_positives, write_csv
        self.prompt_name, self.batch_size, self.show_progress_bar = prompt_name, batch_size, show_progress_bar
        self.evaluation: Evaluation | None = None
        self._samples = RerankingSamples.of(samples)
        if not always_rerank_positives:
            self._samples = self._samples.returned_only()
        self._groups = None
        if groups is not None:  # ids that do not match are reported now
            self._groups = Evaluation(self._samples.lists.query_ids, {}, {}).with_groups(groups).groups
        self._check_measures_are_defined()
        self._base_rows: list[_Row] = []
        if self._samples.retrieved is not None:
            self._base_rows = self._rows("first stage", self._evaluate(self._samples.first_stage()))

    def __call__(
        self, model: Any, output_path: str | Path | None = None, epoch: float | None = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate a model; the trainers call this, with an epoch of None before the first one."""
        self.evaluation = self._evaluate(self.scored_lists(model))
        rows = self._rows("model", self.evaluation)
        results: dict[str, float] = {}
        for row in rows:
            results |= {row.measure: row.mean, f"{row.measure}_low": row.low, f"{row.measure}_high": row.high}
        shown = replace(self.evaluation, values={name: self.evaluation.values[name] for name in self.measures})
        results |= means_by_group(shown, self._groups)
        results |= {f"base_{row.measure}": row.mean for row in self._base_rows}
        results = {self._key(label): value for label, value in results.items() if np.isfinite(value)}
        when = "".join(f"_{number:g}" for number in (epoch, steps) if number not in (None, -1))
        self._log(rows, when)
        if output_path is not None and self.write_csv:
            self._write(Path(output_path), rows + self._rows_of_groups(), epoch, steps, when)
        model.model_card_data.set_evaluation_metrics(self, results, epoch, steps)
        return results

    def scored_lists(self, model: Any) -> Lists:
        """The samples as `Lists` with the scores of a model, for `rankbound.compare` and other functions."""
        samples = self._samples
        returned = np.flatnonzero(samples.lists.returned)
        documents = [samples.documents[index] for index in returned]
        settings = {"batch_size": self.batch_size, "show_progress_bar": self.show_progress_bar}
        query_of_item = samples.lists.query_of_item[returned]
        return samples.with_scores(
            model_scores(model, samples.queries, query_of_item, documents, self.prompt_name, settings)
        )

    def compare(
        self,
        *models: Any,
        names: Sequence[str] | None = None,
        first_stage: bool = False,
        baseline: int | None = 0,
    ) -> Comparison:
        """Compare models on the samples by all measures, as `rankbound.compare` does.

        With ``first_stage`` the ranking before the reranking is the first run, under the name "first stage".
        """
        titles = [f"model {number}" for number in range(1, len(models) + 1)] if names is None else list(names)
        if len(titles) != len(models):
            raise ArgumentError(f"names must have one entry per model, {len(models)}, got {len(titles)}")
        runs = [self._samples.first_stage()] if first_stage else []
        runs += [self.scored_lists(model) for model in models]
        titles = (["first stage"] if first_stage else []) + titles
        return compare(
            *runs,
            measures=list(self.measures),
            names=titles,
            baseline=baseline,
            protocol=self.protocol,
            inference=self.inference,
            groups=self._groups,
        )

    @property
    def per_query(self) -> pl.DataFrame:
        """The last model's values: qid, query, type by the primary measure, and those of `Evaluation.per_query`."""
        import polars as pl

        if self.evaluation is None:
            raise ArgumentError("per_query needs an evaluation: call the evaluator with a model first")
        queries = pl.Series("query", [str(query) for query in self._samples.queries], dtype=pl.String)
        types = pl.Series("type", self._types(), dtype=pl.String)
        values = self.evaluation.per_query
        return values.select("qid").hstack([queries, types]).hstack(values.drop("qid"))

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        settings = {"measures": list(self.measures), "confidence": self.inference.confidence}
        settings["empty"] = self.protocol.empty
        if self._base_rows:
            settings["always_rerank_positives"] = self.always_rerank_positives
        return settings

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _key(self, label: str) -> str:
        return f"{self.name}_{label}" if self.name else label

    def _evaluate(self, lists: Lists) -> Evaluation:
        plain = str(self.measures[self.primary_measure].plain)  # its bounds decide the types of queries
        evaluation = evaluate_lists(lists, parse_measures([plain]) | self.measures, self.protocol, bounds=True)
        return evaluation if self._groups is None else evaluation.with_groups(self._groups)

    def _check_measures_are_defined(self) -> None:
        """Raise DataError before a training starts, not in its first evaluation."""
        order = -np.arange(int(self._samples.lists.returned.sum()), dtype=np.float64)
        means = self._evaluate(self._samples.with_scores(order)).mean()
        if undefined := [name for name in self.measures if np.isnan(means[name])]:
            raise DataError(f"{undefined[0]} is not defined for any of the {len(self._samples.lists)} samples")

    def _rows(self, run: str, evaluation: Evaluation) -> list[_Row]:
        policy = self.inference
        ends = evaluation.interval(
            policy.confidence, method=policy.interval, resamples=policy.resamples, seed=policy.seed
        )
        means, counts, unknown = evaluation.mean(), evaluation.counted_queries(), (float("nan"), float("nan"))
        return [_Row(run, name, means[name], *ends.get(name, unknown), counts[name]) for name in self.measures]

    def _rows_of_groups(self) -> list[_Row]:
        """The means of the last model by group, with intervals where a group has enough queries."""
        assert self.evaluation is not None
        if self._groups is None:
            return []
        values = {name: self.evaluation.values[name] for name in self.measures}
        return [
            _Row(
                "model",
                name_of_group(row.measure, row.attribute, row.group),
                row.mean,
                float("nan") if row.ci_low is None else row.ci_low,
                float("nan") if row.ci_high is None else row.ci_high,
                row.queries,
            )
            for row in group_means(values, self.evaluation.query_ids, self._groups, self.inference)
        ]

    def _types(self) -> list[str | None]:
        assert self.evaluation is not None
        matrix = align_evaluations([self.evaluation], [self.primary_measure])
        return [str(kind) or None for kind in matrix.query_types(self.primary_measure)]

    def _log(self, rows: Sequence[_Row], when: str) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        for row in (*rows, *self._base_rows):
            ends = f"{row.low:.4f} to {row.high:.4f}, {row.queries} queries"
            logger.info("%s, %s: %.4f (%s)", self._key(row.measure) + when, row.run, row.mean, ends)
        types = Counter(kind for kind in self._types() if kind is not None)
        counts = ", ".join(f"{count} {kind}" for kind, count in types.most_common())
        logger.info("types of queries by %s: %s", self.primary_measure, counts)

    def _write(self, folder: Path, rows: Sequence[_Row], epoch: float | None, steps: int, when: str) -> None:
        stem = f"RankingEvaluator_{self.name}" if self.name else "RankingEvaluator"
        with atomic_write(folder / f"{stem}_queries{when}.csv") as temporary:
            self.per_query.write_csv(temporary)
        results = folder / f"{stem}_results.csv"
        is_new = not results.exists()
        with results.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(("epoch", "steps", *_Row._fields))
            writer.writerows((epoch, steps, *row) for row in (*rows, *self._base_rows))


def _join_library(evaluator: RankingEvaluator) -> None:
    """Make the class of an evaluator a subclass of the library's, which its trainers require.

    This is done when an evaluator is created, because the import of the library takes many seconds.
    """
    base = import_package("sentence_transformers.base.evaluation").BaseEvaluator
    kind: Any = type(evaluator)
    if not issubclass(kind, base):
        evaluator.__class__ = _joined(kind, base)


@cache
def _joined(kind: type, base: type) -> Any:
    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind.__name__, (kind, base), names)
