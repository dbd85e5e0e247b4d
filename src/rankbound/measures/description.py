"""Descriptions of measures for the command `rankbound measures` and for the reference page."""

from __future__ import annotations

from typing import Any

from rankbound.measures.definition import Definition, Walked
from rankbound.measures.measure import BOUNDINGS
from rankbound.measures.registry import definitions


def describe(definition: Definition) -> dict[str, Any]:
    """Name, summary, formula, parameters, aliases, source and properties of a measure, ready for JSON.

    >>> from rankbound.measures import get_definition
    >>> describe(get_definition("RR"))["formula"]
    '1 / (rank of the first relevant document), 0 beyond rank k'
    """
    return {
        "name": definition.name,
        "summary": definition.summary,
        "formula": definition.formula,
        "cutoff": definition.cutoff,
        "parameters": {
            name: f"{parameter.rule}; default {parameter.default!r}"
            for name, parameter in definition.parameters.items()
        },
        "aliases": list(definition.aliases),
        "citation": definition.citation,
        "lower_is_better": definition.lower_is_better,
        "expected_value": "closed form" if _has_closed_bounds(definition) else "enumerated or sampled orders",
        "loss": _has_loss(definition),
    }


def _has_closed_bounds(definition: Definition) -> bool:
    return isinstance(definition, Walked) or type(definition).bounds_of_levels is not Definition.bounds_of_levels


def _has_loss(definition: Definition) -> bool:
    from rankbound.measures.measure import Measure

    return definition.has_loss(Measure(definition, 10 if definition.cutoff != "none" else None))


def reference_page() -> str:
    """The reference page of all measures in Markdown, made from their definitions."""
    lines = [
        "# Measures",
        "",
        "This page is generated from the definitions in `src/rankbound/measures`, one file per measure. N is the",
        "number of documents of a query, P the number of relevant ones, r a rank and k the cutoff. `rankbound",
        "measures NAME` prints the same. You can also define [a measure of your own](../how-to/own-measure.md).",
        "",
        "A name has the form `Name(parameter=value, ...)@k`. A wrapper around it, "
        + ", ".join(f"`{wrapper}(...)`" for wrapper in BOUNDINGS)
        + ", normalizes",
        "the value by the [bounds of the query](../concepts/bounding.md), as in `EM(nDCG@10)`.",
        "",
    ]
    for definition in definitions():
        if not definition.built_in:
            continue
        about = describe(definition)
        form = (
            definition.name
            + {"required": "@k", "optional": " or " + definition.name + "@k", "none": ""}[definition.cutoff]
        )
        lines += [f"## {definition.name}", "", f"{about['summary'][0].upper()}{about['summary'][1:]}.", ""]
        lines += [
            f"- Written as `{form if definition.at is None else definition.name + '@0.5'}`",
            f"- Value: `{about['formula']}`",
        ]
        lines += [f"- `{name}`: {rule}" for name, rule in about["parameters"].items()]
        if about["aliases"]:
            lines.append("- Other names: " + ", ".join(f"`{alias}`" for alias in about["aliases"]))
        lines.append(f"- Expected value under random ranking: {about['expected_value']}")
        lines.append("- Smooth and lambda loss: " + ("yes" if about["loss"] else "no"))
        if about["lower_is_better"]:
            lines.append("- Lower is better")
        lines += [f"- Source: {about['citation']}", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    import sys

    sys.stdout.write(reference_page())
