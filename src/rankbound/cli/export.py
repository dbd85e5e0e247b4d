"""rankbound export: a saved ranker as a file for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rankbound.cli import options, output
from rankbound.cli.saved_models import check_packages_of_model
from rankbound.errors import ArgumentError, DataError


class Format(StrEnum):
    """Format of the file; the keys of `rankbound.models.export.FORMATS`, whose import takes longer."""

    onnx = "onnx"
    xgboost_json = "xgboost-json"
    ranklib = "ranklib"
    lightgbm = "lightgbm"


def export(
    model: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder written by rankbound train, rankbound tune or Ranker.save.")
    ],
    file_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="onnx: networks, linear models; xgboost-json: trees; ranklib: linear models, trees; lightgbm: trees.",
        ),
    ],
    out: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")],
    feature_names: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Names of the features in the search engine, one per line in the order of the columns, for "
            "xgboost-json.  [default: the names in training, or f0, f1, ...]",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a saved model as a file for other programs.

    xgboost-json and ranklib are for the learning-to-rank plugins of Elasticsearch and OpenSearch (model/xgboost+json,
    model/ranklib), onnx is for ONNX Runtime, and lightgbm is LightGBM's model text. An existing file is replaced.

    \b
    Example:
      rankbound export model --format onnx -o model.onnx
      rankbound export trees --format xgboost-json --feature-names features.txt -o trees.json
    """
    if Path(out).is_dir():
        raise ArgumentError(f"{out}: is a folder, expected a file name")
    names = None if feature_names is None else _read_names(feature_names)
    check_packages_of_model("export", model)
    with output.working("exporting ..."):
        from rankbound.models.export import export_ranker
        from rankbound.models.saving import load_ranker

        ranker = load_ranker(model)
        try:
            export_ranker(ranker, out, file_format.value, names)
        except ArgumentError as error:
            raise ArgumentError(f"{model}: {error}") from error
    kind, width, size = type(ranker).__name__, int(ranker.n_features_in_), Path(out).stat().st_size
    if as_json:
        output.print_json({"output": out, "model": kind, "format": file_format.value, "features": width, "bytes": size})
    else:
        output.print_note(f"{kind} of {width} features written to {out} as {file_format.value}")


def _read_names(path: str) -> list[str]:
    from rankbound.io import read_bytes

    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: text must be UTF-8, got byte {error.object[error.start]:#04x}") from None
    return [line.strip() for line in lines if line.strip()]
