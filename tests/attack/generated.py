"""Hostile cases from seeds: a command line and what was done to its files, with the outcomes that are right.

A case is a function of its number. It belongs to one of four classes: runs and judgments in a random format with random
damage; commands with random options; saved things (models, stores, archives, baselines, references) with random damage;
outputs to places that are no files to replace. `tables_of` is a strict reader of its own, which shares no code with the
package: where a command gives a number for damaged files, the number must be that of what this reader reads.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import command_inputs, reader_inputs

CLASSES = ("files", "files", "options", "saved", "outputs")
PIECES = (
    "\0", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\ufeff", "\ufffe", "\U0001f600", "e\u0301", "\xa0", "\t", " ",
    "\n", "\r", '"', "'", ",", ";", ":", "\\", "/", "../", "#", "{", "[", "]", "(", "%s", "{0}", "=1+1", "-", "--", "0",
    "-1", "+2", "1_0", "1e3", "1e999", "nan", "inf", "0x10", "\uff11", "9" * 400, "x" * 3_000, "true", "null", "None",
)  # fmt: skip


@dataclass
class Case:
    """The words of a command, and the mean that it must print if it prints one; None where any is right."""

    words: list[str]
    mean: float | None = None
    must_succeed: bool = False
    kept: list[Path] = field(default_factory=list)  # what must be unchanged besides the files of the folder


def generate(number: int, folder: Path) -> Case:
    """Write the files of a case into a folder that has those of `command_inputs` and the saved things."""
    rng = random.Random(1_000_003 * number + 20_261)
    kind = CLASSES[number % len(CLASSES)]
    return {"files": _files, "options": _options, "saved": _saved, "outputs": _outputs}[kind](rng, folder)


# ---- judgments and runs ----------------------------------------------------------------------------------------------


def _files(rng: random.Random, folder: Path) -> Case:
    family = rng.choice(list(reader_inputs.IDS))
    names = reader_inputs.IDS[family].split(" ")
    data = reader_inputs.generate(rng.randrange(10**6), names[:5], names)
    tables = {"qrels": data.qrels, "run": data.run}
    forms = {"qrels": rng.choice(("trec", "csv", "tsv", "jsonl")), "run": rng.choice(("trec", "csv", "tsv", "jsonl"))}
    paths, damaged = {}, rng.choice(("qrels", "run", None))
    read: dict[str, reader_inputs.Table | None] = {}
    for side, table in tables.items():
        lines = _json_lines(table, side) if forms[side] == "jsonl" else reader_inputs.LINES[forms[side]](table, side)
        text = rng.choice(("\n", "\n", "\r\n")).join(lines).encode() + rng.choice((b"\n", b""))
        if side == damaged:
            for _ in range(rng.choice((1, 1, 2, 5))):
                text = rng.choice(DAMAGE)(rng, text)
        ending = {"trec": "txt"}.get(forms[side], forms[side])
        packing = rng.choice(("", "", "", ".gz", ".zst"))
        paths[side] = folder / f"case-{side}.{ending}{packing}"
        paths[side].write_bytes(reader_inputs.COMPRESSION[packing](text))
        read[side] = tables_of(text, forms[side], side)
    mean = None
    if read["qrels"] is not None and read["run"] is not None:
        mean = _mean(read["qrels"], read["run"])
    words = ["evaluate", str(paths["qrels"]), str(paths["run"]), "-m", "AP", "--json"]
    return Case(words, math.nan if mean is None else mean, must_succeed=damaged is None)


def _mean(qrels: reader_inputs.Table, run: reader_inputs.Table) -> float | None:
    if not any(label > 0 for query in qrels.keys() & run.keys() for label in qrels[query].values()):
        return None
    if any(len(set(scores.values())) < len(scores) for scores in run.values()):
        return None  # the oracle knows no ties
    return reader_inputs.mean_average_precision(reader_inputs.Data(qrels, run))


def _json_lines(table: reader_inputs.Table, side: str) -> list[str]:
    rows = []
    for query, documents in table.items():
        entry: dict[str, object] = {"id": query}
        if side == "qrels":
            entry["relevance"] = documents
        else:
            entry |= {"retrieved_ids": list(documents), "scores": list(documents.values())}
        rows.append(json.dumps(entry, ensure_ascii=False))
    return rows


Damage = Callable[[random.Random, bytes], bytes]


def _cut(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def _flip(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text)) if text else 0
    return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1 :] if text else text


def _insert(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(PIECES).encode() + text[at:]


def _remove(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randrange(1, 8) :]


def _repeat_line(rng: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    return b"\n".join([*lines, rng.choice(lines)])


def _swap_lines(rng: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _replace_word(rng: random.Random, text: bytes) -> bytes:
    words = list(re.finditer(rb"[^\s,:\"{}\[\]]+", text))
    if not words:
        return text
    word = rng.choice(words)
    return text[: word.start()] + rng.choice(PIECES).encode() + text[word.end() :]


def _random_bytes(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.randbytes(rng.randrange(1, 40)) + text[at:]


DAMAGE: tuple[Damage, ...] = (
    _cut,
    _flip,
    _insert,
    _insert,
    _remove,
    _repeat_line,
    _swap_lines,
    _replace_word,
    _replace_word,
    _random_bytes,
)

# ---- a reader of its own ---------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff]")


def tables_of(text: bytes, form: str, side: str) -> reader_inputs.Table | None:
    """What a strict reader reads; None where it refuses the text, or does not want to say."""
    try:
        whole = text.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    if _FORBIDDEN.search(whole):
        return None
    lines = whole.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    try:
        if form == "jsonl":
            return _of_json_lines([line for line in lines if line.strip()], side)
        rows = _of_trec(lines, side) if form == "trec" else _of_separated(lines, "," if form == "csv" else "\t", side)
        table: reader_inputs.Table = {}
        for query, document, value in rows:
            documents = table.setdefault(query, {})
            if document in documents or not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
                return None
            if side == "qrels" and form == "trec" and not re.fullmatch("[+-]?[0-9]+", value):
                return None
            documents[document] = float(value)
    except (ValueError, LookupError):
        return None
    return table


def _of_trec(lines: list[str], side: str) -> list[tuple[str, str, str]]:
    rows = []
    for line in lines:
        words = [word for word in re.split("[ \t]", line) if word]
        if not words or words[0].startswith("#"):
            continue
        if (side == "qrels" and len(words) != 4) or (side == "run" and len(words) < 6):
            raise ValueError(line)
        if len(words) > 6 and not re.fullmatch("[+-]?[0-9]+", words[3]):
            raise ValueError(line)
        rows.append((words[0], words[2], words[3 if side == "qrels" else 4]))
    return rows


def _of_separated(lines: list[str], separator: str, side: str) -> list[tuple[str, str, str]]:
    header, *rest = lines
    names = header.split(separator)
    wanted = ["qid", "docid", "label" if side == "qrels" else "score"]
    if any(names.count(name) != 1 for name in wanted) or '"' in "".join(lines):
        raise ValueError(header)
    while rest and not rest[-1]:
        rest.pop()
    rows = []
    for line in rest:
        fields = line.split(separator)
        if len(fields) != len(names) or not all(fields[names.index(name)] for name in wanted):
            raise ValueError(line)
        query, document, value = (fields[names.index(name)] for name in wanted)
        rows.append((query, document, value.strip(" ")))
    return rows


def _of_json_lines(lines: list[str], side: str) -> reader_inputs.Table:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError(pairs)
        return dict(pairs)

    table: reader_inputs.Table = {}
    for line in lines:
        entry = json.loads(line, object_pairs_hook=once)
        if not isinstance(entry, dict) or not {"id"} <= set(entry) or set(entry) & {"qid", "query_id", "_id"}:
            raise ValueError(line)
        if side == "qrels":
            documents = entry["relevance"]
        else:
            documents = dict(zip(entry["retrieved_ids"], entry["scores"], strict=True))
            if len(documents) < len(entry["retrieved_ids"]):
                raise ValueError(line)
        names = [entry["id"], *documents]
        if entry["id"] in table or not all(isinstance(name, str) and name for name in names):
            raise ValueError(line)
        if _FORBIDDEN.search("".join(names)) or any(type(value) not in (int, float) for value in documents.values()):
            raise ValueError(line)
        if not all(math.isfinite(value) for value in documents.values()):
            raise ValueError(line)
        table[entry["id"]] = {name: float(value) for name, value in documents.items()}
    return table


# ---- options ---------------------------------------------------------------------------------------------------------

COMMANDS = {
    "evaluate qrels.txt run.txt": (
        "-m", "--ties", "--empty", "--missing", "--depth", "--candidates", "--judged-outside", "--per-query",
        "--confidence", "--correction", "--reference", "--min-rating", "--cluster", "--scratch",
    ),
    "compare qrels.txt run.txt other.txt": (
        "-m", "--confidence", "--test", "--resamples", "--seed", "--rows", "--per-query", "--page", "--type-quota",
        "--interval", "--candidates",
    ),
    "gate qrels.txt run.txt other.txt": ("-m", "--margin", "--groups", "--save", "--ties", "--depth", "--confidence"),
    "stability qrels.txt run.txt other.txt": ("-m", "--splits", "--partitions", "--rows", "--wrapper"),
    "bounds": ("--n", "--relevant", "--labels", "--depth"),
    "distribution nDCG": ("--n", "--relevant", "--labels", "--samples", "--quantiles", "--points", "--method"),
    "weights qrels.txt": ("-m", "--bounding", "--form", "--cap", "--effective", "--format", "--per", "-o"),
    "rank linear letor.txt": ("-o", "--format", "--tag", "--part"),
    "export linear": ("--format", "-o"),
    "recommend popular": ("-o", "-k", "--users", "--items"),
    "train ratings.csv --model Popularity": ("-o", "--user", "--item", "--rating", "--min-rating", "--param", "--seed"),
    "data split ratings.csv": ("-o", "--by", "--test", "--validation", "--k-core", "--seed", "--format"),
    "data describe": (),
    "store list": (),
    "store export store": (),
    "measures": (),
}  # fmt: skip
_LONG = {"-m", "--page"}  # options whose good values may cost seconds


def _options(rng: random.Random, folder: Path) -> Case:
    command = rng.choice(list(COMMANDS))
    words = command.split()
    for option in rng.sample(COMMANDS[command], min(len(COMMANDS[command]), rng.choice((1, 1, 2, 3)))):
        value = _text(rng, folder)
        words += [f"{option}={value}"] if option.startswith("--") else [option, value]
    if rng.random() < (0.9 if not COMMANDS[command] else 0.2):
        words.insert(rng.randrange(1, len(words) + 1), _text(rng, folder))
    return Case([*words, "--json"] if rng.random() < 0.7 else words)


def _text(rng: random.Random, folder: Path) -> str:
    """A value of an option: wrong ones that are known, pieces next to each other, or a path."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(rng.choice(list(command_inputs.WRONG.values())))
    if kind < 0.75:
        return "".join(rng.choice(PIECES) for _ in range(rng.choice((1, 1, 2, 4))))
    if kind < 0.8:
        return os.fsdecode(rng.randbytes(rng.randrange(1, 12)).replace(b"\0", b"\xff"))
    names = sorted(path.name for path in folder.iterdir())
    return rng.choice([*names, *(f"{name}/x" for name in names), ".", "..", "/", "~", "/dev/null", "/dev/full"])


# ---- saved things ----------------------------------------------------------------------------------------------------

READERS = {
    "linear": ("rank linear letor.txt -o out.txt", "export linear --format ranklib -o out", "recommend linear -o out"),
    "popular": ("recommend popular -o out.csv", "rank popular letor.txt -o out.txt"),
    "store": (
        "store list store",
        "store export store -o out.zip",
        "report store -o out.html",
        "reproduce study.toml --store store --no-run --no-page",
    ),
    "store.zip": ("store import store.zip --store out",),
    "references.json": ("evaluate qrels.txt run.txt -m STD(AP) --reference references.json",),
    "baseline.json": ("gate qrels.txt baseline.json other.txt --margin 0.1",),
}


def _saved(rng: random.Random, folder: Path) -> Case:
    name = rng.choice(list(READERS))
    path = folder / name
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    file = rng.choice(files)
    how = rng.random()
    content = file.read_bytes()
    if how < 0.3 and file.suffix == ".json":
        content = _other_json(rng, content)
    elif how < 0.9:
        for _ in range(rng.choice((1, 1, 3, 20))):
            content = rng.choice(DAMAGE)(rng, content)
    if how < 0.95:
        file.write_bytes(content)
        if rng.random() < 0.6:  # as someone would who also makes the checksums fit
            _sign_anew(rng, path)
    elif how < 0.98:
        file.unlink()
    else:
        target = folder / "elsewhere"
        file.rename(target)
        file.symlink_to(target)
    return Case(rng.choice(READERS[name]).split())


def _sign_anew(rng: random.Random, path: Path) -> None:
    """Make the checksums of a model or an archive fit its content; in an archive, change a value of the index, too."""
    if path.suffix == ".zip" and zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
            index = json.loads(_other_json(rng, members["store.json"]) if rng.random() < 0.7 else members["store.json"])
            for trial in index["trials"]:
                names = {kind: f"{kind}/{trial['id']}.parquet" for kind in json.loads(trial["files"])}
                digests = {kind: hashlib.sha256(members[name]).hexdigest() for kind, name in names.items()}
                trial["files"] = json.dumps(digests)
        except Exception:
            return
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (members | {"store.json": json.dumps(index).encode()}).items():
                archive.writestr(name, content)
    elif (path / "model.json").is_file():
        try:
            index = json.loads((path / "model.json").read_bytes())
            files = [path / name for name in index["files"]]
            index["files"] = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
            index.pop("sha256", None)
            index["sha256"] = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
        except (ValueError, LookupError, TypeError, AttributeError, OSError):
            return
        (path / "model.json").write_text(json.dumps(index))


def _other_json(rng: random.Random, content: bytes) -> bytes:
    """The JSON with one value replaced by another kind of value."""
    tree = json.loads(content)
    places: list[tuple[object, object]] = []

    def visit(node: object) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            places.append((node, key))
            visit(value)

    visit(tree)
    if places:
        node, key = rng.choice(places)
        others = [None, True, -1, 10**30, 1.5, "", "x", "\ud800", [], {}, [[1]], {"a": 1}, float("nan")]
        node[key] = rng.choice(others)  # type: ignore[index]
    return json.dumps(tree).encode()


# ---- outputs ---------------------------------------------------------------------------------------------------------

WRITERS = (
    "evaluate qrels.txt run.txt --per-query OUT",
    "compare qrels.txt run.txt other.txt -m AP --rows OUT",
    "references qrels.txt run.txt other.txt -m AP -o OUT",
    "gate qrels.txt run.txt --save OUT",
    "weights qrels.txt -o OUT",
    "rank linear letor.txt -o OUT",
    "export linear --format ranklib -o OUT",
    "recommend popular -o OUT",
    "train ratings.csv --model Popularity -o OUT",
    "data split ratings.csv -o OUT",
    "store export store -o OUT",
    "store import store.zip --store OUT",
)
ENDINGS = ("", ".csv", ".json", ".parquet", ".txt", ".zip", ".html")


def _outputs(rng: random.Random, folder: Path) -> Case:
    """Outputs to devices, folders, links, and names that no file can have."""
    outside = folder.with_name(folder.name + "-outside")
    outside.mkdir(exist_ok=True)
    kept = outside / "mine"
    kept.write_text("mine")
    ending = rng.choice(ENDINGS)
    out = folder / f"out{ending}"
    how = rng.choice(("device", "full", "link to a folder", "broken link", "folder", "below a file", "name", "long"))
    value = str(out)
    if how == "device":
        value = os.devnull
    elif how == "full":
        value = "/dev/full"
    elif how == "link to a folder":
        out.symlink_to(outside)
    elif how == "broken link":
        out.symlink_to(folder / "nowhere" / "at all")
    elif how == "folder":
        out.mkdir()
        (out / "mine").write_text("mine")
        kept = out / "mine"
    elif how == "below a file":
        value = str(folder / "qrels.txt" / f"x{ending}")
    elif how == "name":
        value = "".join(rng.choice(PIECES) for _ in range(2)).replace("/", "-").replace("\0", "") + ending
    else:
        value = "n" * 300 + ending
    words = rng.choice(WRITERS).split()
    return Case([value if word == "OUT" else word for word in words], kept=[kept])
