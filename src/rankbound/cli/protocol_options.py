"""The options that make a `Protocol`, for all commands that evaluate runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_type_hints

import typer

from rankbound.cli.options import check_inputs, files_in
from rankbound.errors import ArgumentError
from rankbound.protocol import CANDIDATES, CONVENTIONS, UNJUDGED, Empty, JudgedOutside, Missing, Protocol, Ties


def _choice(options: Any, text: str) -> Any:
    return Annotated[options | None, typer.Option(help=text, show_default=get_args(options)[0])]


# the field of Protocol -> the option that sets it; None leaves the field as it is
OPTIONS: Mapping[str, Any] = {
    "ties": _choice(
        Ties, "Equal scores: mean over all orders, order of the file, or trec_eval's order by document id."
    ),
    "empty": _choice(Empty, "Queries for which a measure is not defined: left out of its mean, or counted as 0 or 1."),
    "missing": _choice(Missing, "Judged queries that a run lacks: left out, or counted as 0."),
    "judged_only": Annotated[
        bool | None, typer.Option("--judged-only", help="Remove documents without a judgment from the runs.")
    ],
    "depth": Annotated[
        int | None, typer.Option(metavar="N", help="Evaluate only the first N documents of each query.")
    ],
    "candidates": Annotated[
        str | None,
        typer.Option(
            metavar="judged|returned|FILE|column:NAME",
            help="Documents whose rankings bounds and normalized measures are about: the judged ones, those of them "
            "that the run returned, those in a file, or those that a column of the judgments marks.",
            show_default=CANDIDATES[0],
        ),
    ],
    "judged_outside": _choice(
        JudgedOutside, "Judged documents that the file of candidates lacks: an error, added to it, or left out."
    ),
    "unjudged": Annotated[
        str | None,
        typer.Option(
            metavar="zero|range|range:GRADES|P|FILE",
            help="Returned documents without a judgment: not relevant; the same, with the range of each mean over all "
            "labels that they could have (those of the judgments, or given ones as in range:0,1,2); relevant with a "
            "probability P; or with those in a table with the columns qid, docid and probability, or p_1, p_2, ...",
            show_default=UNJUDGED[0],
        ),
    ],
    "references": Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            metavar="PATH",
            help="Reference run of STD(...), STDU(...) and ECDF(...); a folder of runs; or a .json file that "
            "`rankbound references` wrote. Can be repeated.",
        ),
    ],
}
_BASE = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="|".join([*CONVENTIONS, "SIGNATURE"]),
        help="The conventions of trec_eval, or the protocol of a signature as outputs show it; other options change "
        "single fields.",
    ),
]
_MISSING_ZERO = Annotated[bool, typer.Option("-c", help="Short for --missing zero, as in trec_eval.")]


def takes_protocol(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a protocol, except for some fields, in place of its parameter ``protocol``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        chosen = {name: option for name, option in OPTIONS.items() if name not in without}
        added = {"base": _BASE, **chosen} | ({"missing_zero": _MISSING_ZERO} if "missing" in chosen else {})
        hints = get_type_hints(command, include_extras=True)

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            values = {name: arguments.pop(name) for name in added}
            command(**arguments, protocol=_build_protocol(values))

        parameters = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name == "protocol":
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters += [
                    inspect.Parameter(name, kind, default=False if name == "missing_zero" else None, annotation=option)
                    for name, option in added.items()
                ]
            else:
                parameters.append(
                    parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
                )
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _build_protocol(values: Mapping[str, Any]) -> Protocol:
    """The protocol that the options describe."""
    base = values["base"]
    fields = {name: value for name, value in values.items() if name in OPTIONS and value is not None}
    if values.get("missing_zero"):
        fields["missing"] = "zero"
    if "references" in fields:
        fields["references"] = _read_references(fields["references"])
    if "unjudged" in fields:
        fields["unjudged"] = _read_unjudged(fields["unjudged"])
    changed = Protocol() if base is None else Protocol.parse(base)
    return changed.changed(**fields)


def _read_unjudged(text: str) -> str | float:
    """A probability as a number, other values as they are."""
    try:
        return float(text)
    except ValueError:
        return text


def _read_references(paths: Sequence[str]) -> Any:
    """The value of ``references`` for a protocol: None, the path of a file of scores, or runs by name."""
    if not paths:
        return None
    if any(path.endswith(".json") for path in paths):
        if len(paths) > 1:
            raise ArgumentError(
                f"--reference must be runs or one .json file, got {len(paths)} paths: {', '.join(paths)}"
            )
        return paths[0]
    files = files_in(paths)
    check_inputs(*files)
    return {path: path for path in files}
