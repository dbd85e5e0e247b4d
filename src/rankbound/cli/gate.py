"""rankbound gate: may this change be merged?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.protocol_options import takes_protocol
from rankbound.errors import ArgumentError
from rankbound.protocol import Protocol

if TYPE_CHECKING:
    from rankbound.evaluation.gate import Gate


FAILS, CANNOT_TELL = 1, 3
_EXIT_CODES = {"pass": 0, "fail": FAILS, "cannot tell": CANNOT_TELL}


@takes_protocol("missing", "references")
def gate(
    qrels: options.Qrels,
    baseline: Annotated[
        str, typer.Argument(help="The run that is in use, or a .json file that --save wrote.", metavar="BASELINE")
    ],
    run: Annotated[str | None, typer.Argument(help="The run that may replace it.", metavar="[NEW]")] = None,
    measures: Annotated[list[str] | None, options.plain_measures(("nDCG@10",))] = None,
    margin: Annotated[
        float | None, typer.Option(metavar="M", help="The loss that would matter, in units of the measure.")
    ] = None,
    groups: options.Groups = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the values of the last run as a baseline, a .json file.")
    ] = None,
    protocol: Protocol = Protocol(),  # noqa: B008  # immutable
    confidence: options.Confidence = 0.95,
    as_json: options.Json = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for the summary of a CI job.")
    ] = False,
) -> None:
    """Say whether a run may replace a baseline: pass, fail, or cannot tell.

    It passes if a loss of the margin or more is ruled out, and fails if a loss is established, for all queries or for a
    group. Otherwise there are too few queries to tell, and the table says how many would be needed. The queries are
    those of the baseline; one that the new run lacks counts as 0.

    The exit code is 0 for pass, 1 for fail, 3 for cannot tell, and 2 for bad input. With --save and a single run,
    nothing is compared: its values are stored.

    \b
    Example:
      rankbound gate qrels.txt baseline.txt new.txt -m nDCG@10 --margin 0.02
      rankbound gate qrels.txt baseline.txt --save baseline.json
      rankbound gate qrels.txt baseline.json new.txt --margin 0.02 --markdown
      rankbound gate old.jsonl new.jsonl -m R@5 --margin 0.05
    """
    from rankbound.data.json_lines import check_same_judgments, is_json_lines
    from rankbound.evaluation.gate import gate as run_gate
    from rankbound.evaluation.gate import store_baseline
    from rankbound.evaluation.inference import Inference

    if as_json and as_markdown:
        raise ArgumentError("--json and --markdown exclude each other")
    if save is not None and (Path(save).suffix != ".json" or Path(save).is_dir()):
        raise ArgumentError(f"{save}: the name of a stored baseline must end with .json")
    if run is None and save is None and is_json_lines(qrels):  # old.jsonl new.jsonl: the first has judgments as well
        check_same_judgments([qrels, baseline])
        baseline, run = options.with_own_run(qrels, [baseline], least=2)
    else:
        options.with_own_run(qrels, [baseline] if run is None else [baseline, run], least=1)
    names = measures or ["nDCG@10"]
    policy = protocol.changes()
    if run is None:
        if save is None:
            raise ArgumentError("a gate needs a baseline and a new run; a single run can be stored with --save FILE")
        store_baseline(save, qrels, baseline, names, **policy)
        if as_json:
            output.print_json({"baseline": save})
        else:
            output.print_note(f"Baseline: {save}")
        return
    if margin is None:
        raise ArgumentError("a gate needs --margin, the loss that would matter, such as 0.02")
    with output.working("evaluating ..."):
        result = run_gate(
            qrels, baseline, run, names, margin=margin, groups=groups, inference=Inference(confidence), **policy
        )
    if save is not None:
        store_baseline(save, qrels, run, names, **policy)
    if as_json:
        output.print_json(result.to_dict() | ({} if save is None else {"saved": save}))
    else:
        _print(result, as_markdown)
    if code := _EXIT_CODES[result.outcome]:
        raise typer.Exit(code)


def _print(result: Gate, as_markdown: bool) -> None:
    from rankbound.report.gate import gate_markdown, gate_sentences, gate_tables

    if as_markdown:
        typer.echo(gate_markdown(result), nl=False)
        return
    output.print_note(f"{result.outcome.upper()}: {result.run} against {result.baseline}, margin {result.margin:g}")
    for sentence in [*gate_sentences(result), *result.notes]:
        output.print_note(sentence)
    for table in gate_tables(result, most_queries=5):
        output.print_note("")
        output.show_table(table)
