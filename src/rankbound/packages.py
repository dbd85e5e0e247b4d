"""How modules import packages of rankbound's extras."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["required_package"]


def required_package(module: str, extra: str, user: str = "this integration") -> ModuleType:
    """Import a module of another tool; ImportError names the extra of rankbound that installs it, and who needs it.

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
            f"{user} needs {module}, which is not installed: pip install 'rankbound[{extra}]'",
            name=error.name,
        ) from error
