"""rankbound measures: list all measures, or show their formula, parameters, aliases and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbound.cli import options, output

if TYPE_CHECKING:
    from rankbound.measures import Definition


def measures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Show these measures in full.  [default: list all]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List all measures, or show the named ones in full.

    \b
    Examples:
      rankbound measures
      rankbound measures nDCG AP
      rankbound --module my_measures measures MyDCG
    """
    from rankbound.measures import definitions
    from rankbound.measures.description import describe
    from rankbound.measures.registry import find

    chosen = [find(name, name)[0] for name in names] if names else list(definitions())
    if as_json:
        output.print_json({"measures": [describe(definition) for definition in chosen]})
    elif names:
        for definition in chosen:
            _print_one(definition, describe(definition))
    else:
        output.print_table(
            "Measures",
            ["name", "what it is", "other names"],
            [[_form(definition), definition.summary, ", ".join(definition.aliases)] for definition in chosen],
            text_columns=3,
            note="`rankbound measures NAME` shows formula, parameters and source. The wrappers MM, EB, EM, Z, DB, "
            "UL1, UL2 and UL2C normalize a measure by the difficulty of each query, as in EM(nDCG@10); STD, STDU "
            "and ECDF standardize it by reference runs.",
        )


def _form(definition: Definition) -> str:
    return definition.name + {"required": "@k", "optional": "[@k]", "none": ""}[definition.cutoff]


def _print_one(definition: Definition, description: dict[str, Any]) -> None:
    rows = [[field.replace("_", " "), _text(description[field])] for field in description if description[field] != ""]
    output.print_table(definition.name, ["", ""], rows, text_columns=2)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_text(entry) for entry in value) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_text(entry)}" for key, entry in value.items()) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
