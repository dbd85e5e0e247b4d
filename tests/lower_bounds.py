"""Print the lowest version of every dependency that pyproject.toml allows, as constraints for pip.

``make oldest`` installs these versions and runs the tests of `SMOKE` in the Makefile with them.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path


def lower_bounds(text: str) -> list[str]:
    """The constraints of a pyproject.toml; requirements that name the package itself are no dependencies.

    >>> extras = 'optional-dependencies = {x = ["own[y]", "b[z]>=1"]}'
    >>> lower_bounds('project = {name = "own", dependencies = ["a>=2.0"], ' + extras + "}")
    ['a==2.0', 'b==1']
    """
    project = tomllib.loads(text)["project"]
    extras = project.get("optional-dependencies", {}).values()
    requirements = itertools.chain(project["dependencies"], *extras)
    found: dict[str, str] = {}
    for requirement in requirements:
        name, _, bound = re.sub(r"\[[^]]*\]", "", requirement).partition(">=")
        if name == project["name"]:
            continue
        if not re.fullmatch(r"[\w.]+", bound):
            raise ValueError(f"a dependency must have a lower bound and nothing else, got {requirement!r}")
        if found.setdefault(name, bound) != bound:
            raise ValueError(f"{name} has the lower bounds {found[name]} and {bound}")
    return [f"{name}=={bound}" for name, bound in found.items()]


# later versions of what dependencies need themselves, but that their lowest versions do not know yet
OTHERS = ["click<8.5"]  # typer imports names that click has deprecated since

if __name__ == "__main__":
    bounds = lower_bounds(Path(__file__).parents[1].joinpath("pyproject.toml").read_text("utf-8"))
    print("\n".join([*bounds, *OTHERS]))
