"""rankbound tune: choose model, loss, bounding and parameters on validation queries, and save the model."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output
from rankbound.packages import CLUSTER, check_packages

if TYPE_CHECKING:
    from rankbound.data.letor import LetorData
    from rankbound.tuning import TuneResult

_SHOWN = 15  # trials in the printed table


class SamplerName(StrEnum):
    """How settings are suggested."""

    tpe = "tpe"
    random = "random"


def tune(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="LETOR or SVMlight file, or a data set such as mq2008 or mq2008/1 (fold 1)."
        ),
    ],
    folder: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder for trials, table, page and model; resumes.")
    ] = "tuned",
    valid: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Validation queries.  [default: the fold's own, or a fifth of the queries]"),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Queries to measure the chosen model on, once.  [default: the fold's own]"),
    ] = None,
    measure: Annotated[
        str,
        typer.Option("-m", "--measure", metavar="MEASURE", help="Measure that selects on the validation queries."),
    ] = "nDCG(dcg='exp-log2')@10",
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", help="Time of all runs in DIR together.  [default: 10 unless --trials is given]"),
    ] = None,
    trials: Annotated[int | None, typer.Option(metavar="N", help="Number of trials.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Class of a ranker; can be repeated.  [default: LambdaMART and MLPRanker]"),
    ] = None,
    space: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML file with a table of ranges for each model.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Fixed parameter of the rankers. Can be repeated.")
    ] = None,
    sampler: Annotated[SamplerName, typer.Option(help="Optuna's TPE, or random search.")] = SamplerName.tpe,
    no_pruning: Annotated[bool, typer.Option("--no-pruning", help="Let trials that fall behind continue.")] = False,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit the chosen setting again on training and validation queries.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "--workers", metavar="N", help="Number of worker processes.  [default: all cores]"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR", help="Run on Dask: local:N, or a scheduler's tcp://host:port whose workers see DIR."
        ),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Module (or .py file) to import in every worker, to define measures; repeat for more."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")] = 0,
    page: Annotated[
        str | None, typer.Option(metavar="FILE", help="Path of the HTML page.  [default: report.html in DIR]")
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Write no page.")] = False,
    as_json: options.Json = False,
) -> None:
    """Choose model, loss, bounding and parameters on validation queries, and save the model.

    Finished trials are kept: after an interruption, the same command resumes the search.

    \b
    Examples:
      rankbound tune mq2008/1 --minutes 10
      rankbound tune train.txt --valid vali.txt --test test.txt --model LambdaMART --trials 50 -o tuned
    """
    from rankbound.cli.train import fit_width, parse_params, read_parts
    from rankbound.cli.user_code import name_modules
    from rankbound.models.by_name import packages_of
    from rankbound.tuning import read_space, show_progress
    from rankbound.tuning import tune as search
    from rankbound.tuning.space import DEFAULT_MODELS

    ranges = None if space is None else read_space(space)
    needed = [*packages_of(*(model or ranges or DEFAULT_MODELS)), "optuna"]
    check_packages("tune", *needed, *([] if no_page else ["jinja2"]), *(CLUSTER if cluster else []))
    with output.working("reading ..."):
        parts = read_parts(data)
        held_out = parts.validation if valid is None else read_parts(valid).train
        tested = parts.test if test is None else read_parts(test).train
    width = parts.train.features.shape[1]

    def columns(part: LetorData | None) -> tuple[Any, Any, Any] | None:
        return None if part is None else _columns(fit_width(part, width))

    X, y, qid = _columns(parts.train)
    with show_progress() as progress:
        result = search(
            X,
            y,
            qid=qid,
            eval_set=columns(held_out),
            test_set=columns(tested),
            measure=measure,
            models=model,
            space=ranges,
            params=parse_params(param or []),
            minutes=minutes,
            trials=trials,
            sampler=sampler.value,
            pruning=not no_pruning,
            refit=refit,
            folder=folder,
            page=False if no_page else page or True,
            jobs=jobs,
            cluster=cluster,
            modules=name_modules(module),
            seed=seed,
            progress=progress,
        )
    _print_result(result, as_json)


def _columns(part: LetorData) -> tuple[Any, Any, Any]:
    return part.features, part.lists.labels, part.lists.query_of_item


def _print_result(result: TuneResult, as_json: bool) -> None:
    if as_json:
        output.print_json(result.to_dict())
        return
    from rankbound.tuning.page import COLUMNS, describe_params, describe_test, trials_rows

    rows = trials_rows(result)
    best = result.best
    title = f"{result.measure} on {result.queries['validation']:,} validation queries, {len(rows)} trials"
    shown = [row[:9] for row in rows[:_SHOWN]]
    kept = "" if best.steps is None else f", {best.steps} steps"
    refitted = ", fitted again on training and validation queries" if result.refitted else ""
    lines = [
        f"The {_SHOWN} best of {len(rows)} trials are shown." if len(rows) > _SHOWN else "",
        f"Chosen: trial {best.number}, {best.model} with {describe_params(best.params)}{kept}{refitted}.",
        *result.notes,
        describe_test(result),
        f"Trials: {result.ran} run now, {len(rows) - result.ran} before. Model: {result.folder}/model, table: "
        f"{result.folder}/trials.csv" + ("" if result.page is None else f", page: {result.page}"),
    ]
    output.print_table(title, COLUMNS, shown, text_columns=2, note="\n".join(filter(None, lines)))
