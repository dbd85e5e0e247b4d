"""Models on disk: a folder of JSON, safetensors and LightGBM's own text. Never pickle.

==========================  ========================================================================================
``model.json``              class, parameters, versions, feature names, metadata, the sha256 of every file
``weights.safetensors``     arrays, if the model has any
``trees*.txt``              LightGBM's text, if the model is made of trees
``users.json``,             the ids of users and items, if the model is a recommender
``items.json``
==========================  ========================================================================================

Saving is atomic: the folder is written under another name next to its target, synchronized to disk, and renamed. A
previous model is kept as ``.NAME.previous`` until the new one is in place; `load_ranker` falls back to it, so that a
model can be loaded whenever a process is killed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound import __version__, models
from rankbound.errors import ArgumentError, DataError, RankboundError
from rankbound.io import locked_folder
from rankbound.measures import Measure, parse_measure
from rankbound.models import RANKERS
from rankbound.models.base import FittedState, Ranker
from rankbound.models.options import OptionGroup
from rankbound.packages import import_package

if TYPE_CHECKING:
    from os import PathLike

FORMAT_VERSION = 1
_FORMAT = "rankbound-model"
_MAX_FEATURES = 1 << 24
_DTYPES = ("bool", "float32", "float64", "int32", "int64")  # of the arrays that models save
_FILE_NAME = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]*")
_INDEX, _WEIGHTS = "model.json", "weights.safetensors"
_PACKAGES = ("rankbound.losses", "rankbound.measures", "rankbound.models")  # whose classes a parameter may have


def save_ranker(ranker: Ranker, path: str | PathLike[str]) -> None:
    """Write a fitted ranker to the folder ``path``; an existing model is replaced, anything else is refused."""
    _check_class(ranker)
    target = Path(os.path.realpath(path))  # not resolve(), which raises another error for a loop of links
    if target.exists() and not (target / _INDEX).is_file():
        raise ArgumentError(f"{target}: exists and is not a model folder")
    state, common = ranker._fitted_state(), ranker._common_state()
    files = {file: text.encode() for file, text in (state.texts | common.texts).items()}
    if arrays := state.arrays | common.arrays:
        files[_WEIGHTS] = _safetensors().save({key: np.ascontiguousarray(a) for key, a in arrays.items()})
    names = getattr(ranker, "feature_names_in_", None)
    index = {
        "format": _FORMAT,
        "format_version": FORMAT_VERSION,
        "rankbound": __version__,
        "class": type(ranker).__name__,
        "params": {key: _encode(key, value) for key, value in ranker.get_params(deep=False).items()},
        "n_features_in": int(ranker.n_features_in_),
        "n_queries": int(ranker.n_queries_),
        "feature_names": None if names is None else list(map(str, names)),
        "eval_score": getattr(ranker, "eval_score_", None),
        "metadata": state.metadata,
        "files": {file: hashlib.sha256(content).hexdigest() for file, content in sorted(files.items())},
    }
    index["sha256"] = _digest(index)
    files[_INDEX] = json.dumps(index, indent=1, allow_nan=False).encode()
    try:
        with locked_folder(target.parent):  # one save at a time, because temporary names are shared
            _write_folder(target, files)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror or error}") from error


def load_ranker(path: str | PathLike[str]) -> Ranker:
    """Load a ranker that `Ranker.save` wrote; its scores equal those of the saved one bit for bit.

    Raises DataError with the reason if the folder is not a model, is damaged, or was written by a newer version.
    Nothing in the folder is executed.
    """
    folder = Path(os.path.realpath(path))
    with locked_folder(folder.parent, create=False):  # no save can change the folder between reading index and weights
        if not folder.exists() and _previous(folder).exists():  # a save was interrupted between its two renames
            folder = _previous(folder)
        index = _read_index(folder)
        contents = _read_files(folder, index["files"])
    safetensors = _safetensors()
    try:
        arrays = safetensors.load(contents.pop(_WEIGHTS)) if _WEIGHTS in contents else {}
        for name, array in arrays.items():
            if str(array.dtype) not in _DTYPES:
                raise DataError(f"{_WEIGHTS}: {name} must be of {', '.join(_DTYPES)}, got {array.dtype}")
        state = FittedState(arrays, {file: content.decode() for file, content in contents.items()}, index["metadata"])
        return _restore_ranker(index, state)
    except RankboundError as error:
        raise DataError(f"{folder}: {error}") from error
    except Exception as error:  # inconsistent files can raise any error in models and libraries
        kind, reason = index["class"], f"{type(error).__name__}: {error}"
        raise DataError(f"{folder}: cannot be loaded as {kind} by rankbound {__version__}: {reason}") from error


def _restore_ranker(index: dict[str, Any], state: FittedState) -> Ranker:
    """Restore the ranker and compute one score, which fails if its parts are inconsistent."""
    width, names = index["n_features_in"], index["feature_names"]
    if not isinstance(width, int) or not 1 <= width <= _MAX_FEATURES or (names is not None and len(names) != width):
        raise DataError(
            f"n_features_in must be from 1 to {_MAX_FEATURES} and equal the number of feature_names, got {width!r}"
        )
    kind = _class_of(index["class"])
    params = {key: _decode(value) for key, value in index["params"].items()}
    ranker: Ranker = kind(**(kind._params_of_older_files | params))
    ranker.n_features_in_ = width
    if names is not None:
        ranker.feature_names_in_ = np.array(names, dtype=object)
    ranker._restore_common(state)
    ranker._restore_state(state)
    if index["eval_score"] is not None:
        ranker.eval_score_ = float(index["eval_score"])
    ranker.n_queries_ = int(index["n_queries"])
    if ranker._scores(np.zeros((1, width))).shape != (1,):
        raise DataError("the model must compute one score for one row")
    return ranker


# ---- the index -------------------------------------------------------------------------------------------------------


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / _INDEX
    try:
        index = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{folder}: is not a model folder, {_INDEX} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged, not JSON: {error}") from error
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise DataError(f"{path}: is not the index of a rankbound model")
    if index.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{path}: has format version {index.get('format_version')} of rankbound {index.get('rankbound')}; "
            f"rankbound {__version__} reads version {FORMAT_VERSION}"
        )
    if index.pop("sha256", None) != _digest(index):
        raise DataError(f"{path}: is damaged, its sha256 differs from the recorded one")
    if not isinstance(index.get("files"), dict) or str(index.get("class")) not in RANKERS:
        raise DataError(f"{path}: class must be one of {', '.join(RANKERS)}, got {index.get('class')!r}")
    return index


def _read_files(folder: Path, digests: dict[str, str]) -> dict[str, bytes]:
    contents = {}
    for file, digest in digests.items():
        if not _FILE_NAME.fullmatch(file):
            raise DataError(f"{folder / _INDEX}: file names must be plain and have no folder, got {file!r:.60}")
        try:
            contents[file] = (folder / file).read_bytes()
        except OSError as error:
            raise DataError(f"{folder / file}: cannot be read: {error.strerror}") from error
        if hashlib.sha256(contents[file]).hexdigest() != digest:
            raise DataError(f"{folder / file}: is damaged, its sha256 differs from that in {_INDEX}")
    return contents


def _digest(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _check_class(ranker: Ranker) -> None:
    name = type(ranker).__name__
    if name not in RANKERS or _class_of(name) is not type(ranker):
        raise ArgumentError(f"only the rankers of rankbound can be saved ({', '.join(RANKERS)}), got {name}")


def _class_of(name: str) -> type[Ranker]:
    ranker_class: type[Ranker] = getattr(models, name)
    return ranker_class


def _encode(name: str, value: Any) -> Any:
    """Encode a parameter as JSON; tuples, measures, losses and models are wrapped so that they can be restored."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):  # restored as a list
        value = value.tolist()
    if isinstance(value, Path):  # restored as text
        value = str(value)
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, Measure):
        return {"measure": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [_encode(name, entry) for entry in value]}
    if isinstance(value, list):
        return [_encode(name, entry) for entry in value]
    if isinstance(value, dict):
        return {"dict": {str(key): _encode(name, entry) for key, entry in value.items()}}
    if isinstance(value, Ranker):  # a model of a blend, not its fitted state
        _check_class(value)
        params = {key: _encode(key, entry) for key, entry in value.get_params(deep=False).items()}
        return {"ranker": type(value).__name__, "params": params}
    for package in _PACKAGES:
        if is_dataclass(value) and _public_class(package, type(value).__name__) is type(value):
            options = {option.name: getattr(value, option.name) for option in fields(value) if option.init}
            encoded = {key: _encode(name, option) for key, option in options.items()}
            return {"object": [package, type(value).__name__], "options": encoded}
    raise ArgumentError(f"parameters of a saved ranker must be plain values, losses or measures, got {name}={value!r}")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "measure" in value:
        return parse_measure(value["measure"])
    if "tuple" in value:
        return tuple(_decode(entry) for entry in value["tuple"])
    if "dict" in value:
        return {key: _decode(entry) for key, entry in value["dict"].items()}
    if "ranker" in value:
        if value["ranker"] not in RANKERS:
            raise DataError(f"a model must be one of {', '.join(RANKERS)}, got {value['ranker']!r}")
        kind = _class_of(value["ranker"])
        params = {key: _decode(entry) for key, entry in value["params"].items()}
        return kind(**(kind._params_of_older_files | params))
    package, name = value["object"]
    if package not in _PACKAGES:
        raise DataError(f"a parameter must be a loss or a measure of rankbound, got {package}.{name}")
    loaded = _public_class(package, name)
    if loaded is None or not is_dataclass(loaded):  # a file must not be able to call functions
        raise DataError(f"{package} has no {name!r}")
    return loaded(**{key: _decode(option) for key, option in value["options"].items()})


def _public_class(package: str, name: str) -> type[Any] | None:
    """Return the class of a name that a package exports, whatever module of the package it is defined in."""
    module = importlib.import_module(package)
    found = getattr(module, name) if name in module.__all__ else None
    if not isinstance(found, type) or (package == "rankbound.models" and not issubclass(found, OptionGroup)):
        return None
    return found


# ---- the folder ------------------------------------------------------------------------------------------------------


def _write_folder(target: Path, files: dict[str, bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, previous = target.with_name(f".{target.name}.partial"), _previous(target)
    if not target.exists() and previous.exists():
        previous.rename(target)  # an earlier save was interrupted between its two renames
    for leftover in (partial, previous):
        shutil.rmtree(leftover, ignore_errors=True)
    partial.mkdir()
    try:
        for file, content in files.items():
            with (partial / file).open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        if target.exists():
            target.rename(previous)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _sync_folder(target.parent)
    shutil.rmtree(previous, ignore_errors=True)


def _previous(target: Path) -> Path:
    return target.with_name(f".{target.name}.previous")


def _sync_folder(folder: Path) -> None:
    """Synchronize the renames to disk, where the system can open a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _safetensors() -> Any:
    return import_package("safetensors.numpy", "a saved model")
