"""How an integration imports the package that it is for."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["required_package"]


def required_package(module: str, extra: str) -> ModuleType:
    """Import a module of another tool; ImportError names the extra of rankbound that installs it.

    >>> required_package("no_such_tool", "no-such-tool")
    Traceback (most recent call last):
    ImportError: this integration needs no_such_tool, which is not installed: pip install 'rankbound[no-such-tool]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the tool is there, and something that it needs itself is not
        raise ImportError(
            f"this integration needs {module}, which is not installed: pip install 'rankbound[{extra}]'",
            name=error.name,
        ) from error
