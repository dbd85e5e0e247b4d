"""The parser accepts every command line of the README and of the documentation as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rankbound.cli.commands import load_command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(rankbound \w[^`]*)`(?!`)")
REDIRECTIONS = {">", ">>", "<", "2>", "|"}


def split_commands(text):
    """Return the arguments of each command of rankbound in a text of a shell, without comments and redirections."""
    found = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for command in re.split(r" && |; ", line.removeprefix("$ ")):
            if command.startswith("rankbound "):
                words = shlex.split(command, comments=True)[1:]
                end = next((at for at, word in enumerate(words) if word in REDIRECTIONS), len(words))
                found.append(words[:end])
    return found


def documented_lines(page):
    """Return the command lines of a page: those of its blocks, and those in its sentences that have arguments."""
    text = page.read_text(encoding="utf-8")
    blocks = [arguments for block in FENCE.findall(text) for arguments in split_commands(block)]
    mentions = [words for mention in INLINE.findall(FENCE.sub("", text)) for words in split_commands(mention)]
    return blocks + [words for words in mentions if _is_complete(words)]


def _is_complete(words):
    """Whether words are meant to be typed: `rankbound report --tables` and `rankbound data get` only name something."""
    arguments = words[2:] if words[0] in ("data", "store") else words[1:]
    return "..." not in words and any(not word.startswith("-") for word in arguments)


LINES = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in documented_lines(page)]


@pytest.mark.parametrize("page", sorted({page for page, _ in LINES}))
def test_command_lines_are_accepted_as_they_are_written(page):
    for other, line in LINES:
        if other == page:
            parse(line)


def test_the_parser_refuses_what_lacks_an_option_or_has_one_too_many():
    for line in (["rank", "model", "test.txt"], ["tune", "DATA", "--epoch", "3"], ["data", "split"]):
        with pytest.raises(Exception, match=r"Missing parameter|No such option"):
            parse(line)


def parse(line):
    """Read a command line as the program does, and run nothing."""
    if line[0] == "--module":
        line = line[2:]
    if line == ["--help"]:
        return
    name, *arguments = line
    command = load_command(name)
    if hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)
