"""Options of every command with values that are wrong, and files to call the commands with.

Each option belongs to a kind, and each kind has its wrong values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

HUGE = "99999999999999999999999"  # beyond 64 bits

WRONG: dict[str, tuple[str, ...]] = {
    "count": ("0", "-1", "x", "", "1.5", "nan", "1e3", "0x10", "-" + HUGE, "1 2"),
    "seed": ("-1", "x", "", "1.5", "nan", "-" + HUGE, "1,2"),
    "level": ("0", "1", "-0.5", "95", "nan", "inf", "-inf", "x", "", "1e400", "0.9999999999999999"),
    "fraction": ("0", "1", "-0.5", "95", "nan", "inf", "-inf", "x", "", "1e400"),
    "number": ("x", "", "nan", "inf", "-inf", "1,5", "1e400", "0x10"),
    "choice": ("x", "", "nan", "0", "TRUE", "average ", "a,b"),
    "measure": (
        "nDGC@10", "nDCG@-3", "nDCG@0", "P", "UL2(UL2(AP))", "nDCG(", "nDCG)", "nDCG@x", "nDCG(dcg='x')", "", " ",
        "@10",
        "AP@1e3", "nDCG(foo=1)", "RBP(p=2)", "RBP(p=nan)", "ERR(max_rel=0)", "EM()", "EM(nDCG", "XX(nDCG)",
        "AP(rel=x)",
        "a" * 5000, "nDCG@10@10", "nDCG@1.5", "AP(rel=inf)", "nDCG\x1b[31m", "(((((", "AP;", "nDCG(dcg=)",
        "ir_measures.AP",
    ),
    "table": ("v.xlsx", "v", "", "folder", "folder.csv", "run.txt/v.csv"),
    "file in": (
        "absent", "absent.csv", "folder", "empty", "broken.gz", "binary", "run.txt/", "", "truncated.parquet",
        "absent/x",
    ),
    "folder in": ("absent", "run.txt", "empty", "", "folder", "absent/x"),
}  # fmt: skip

RANKING = {
    "-m": "measure", "--depth": "count", "--ties": "choice", "--missing": "choice", "--candidates": "file in",
    "--judged-outside": "choice",
}  # fmt: skip
INFERENCE = {
    "--confidence": "level", "--test": "choice", "--correction": "choice", "--resamples": "count", "--seed": "seed",
}  # fmt: skip
INTERACTIONS = {"--user": "choice", "--item": "choice", "--rating": "choice", "--min-rating": "number"}

# command line without the wrong option -> its options and arguments (by position: "DATA" and so on) by kind
COMMANDS: dict[str, dict[str, str]] = {
    "evaluate qrels.txt run.txt": RANKING | {
        "--empty": "choice", "--per-query": "table", "--confidence": "level", "--reference": "file in",
    },
    "evaluate FILE run.txt": {"FILE": "file in"},
    "evaluate qrels.txt FILE": {"FILE": "file in"},
    "compare qrels.txt run.txt other.txt": RANKING | INFERENCE | {
        "--empty": "choice", "--interval": "choice", "--type-quota": "level", "--per-query": "table", "--rows": "table",
        "--page": "table",
    },
    "compare qrels.txt run.txt FILE": {"FILE": "file in"},
    "stability qrels.txt run.txt other.txt": RANKING | INFERENCE | {
        "--splits": "count", "--partitions": "seed", "--same-prefix": "count", "--rows": "table", "--wrapper": "choice",
    },
    "references qrels.txt run.txt -o refs.json": {"-m": "measure", "--depth": "count", "--ties": "choice"},
    "bounds": {"MEASURE --n 3 --relevant 1": "measure"},
    "bounds nDCG --relevant 1": {"--n": "count"},
    "bounds nDCG --n 9": {"--relevant": "seed"},
    "bounds nDCG --n 9 --relevant 2": {"--depth": "count"},
    "bounds nDCG": {"--labels": "labels"},
    "distribution": {"MEASURE --n 3 --relevant 1": "measure"},
    "distribution nDCG --relevant 1": {"--n": "count"},
    "distribution nDCG --n 9 --relevant 2": {
        "--depth": "count", "--method": "choice", "--samples": "count", "--seed": "seed", "--points": "count",
        "--ranker-strength": "fraction", "--quantiles": "number",
    },
    "weights qrels.txt": {
        "-m": "measure", "--bounding": "choice", "--form": "choice", "--cap": "number", "--effective": "number",
        "--format": "choice", "--per": "choice", "-o": "table",
    },
    "weights FILE": {"FILE": "file in"},
    "report qrels.txt run.txt -o page.html": RANKING | INFERENCE | {"--baseline": "choice", "--empty": "choice"},
    "train letor.txt -o model": {
        "--model": "choice", "--loss": "choice", "--bounding": "choice", "-m": "measure", "--valid": "file in",
        "--config": "toml in", "--min-rating": "number",
    },
    "train FILE -o model": {"FILE": "file in"},
    "train FILE -o model --model Popularity": {"FILE": "file in"},
    "train ratings.csv -o model --model Popularity": INTERACTIONS | {"-m": "measure", "--valid": "file in"},
    "train ratings.csv -o model --model EASE": {"--param l2": "number", "--param x": "number"},
    "train ratings.csv -o model --model Blend --param models=EASE,ItemKNN": {
        "--param EASE.l2": "number", "--param weight_steps": "count", "--seed": "seed",
    },
    "train ratings.csv -o model --model ItemKNN": {"--param neighbors": "count"},
    "train ratings.csv -o model --model ImplicitALS": {"--param factors": "count", "--epochs": "count"},
    "recommend popular -o top.csv": {"-k": "count", "--users": "file in", "--items": "file in"},
    "recommend FOLDER -o top.csv": {"FOLDER": "folder in"},
    "recommend linear -o top.csv": {"-k": "count"},
    "rank FOLDER letor.txt -o run": {"FOLDER": "folder in"},
    "rank linear FILE -o run": {"FILE": "file in"},
    "rank linear letor.txt -o run": {"--format": "choice", "--part": "choice"},
    "export FOLDER --format ranklib -o out": {"FOLDER": "folder in"},
    "export linear -o out": {"--format": "choice"},
    "export linear --format ranklib": {"-o": "folder out"},
    "export popular -o out": {"--format": "format"},
    "tune letor.txt --trials 1 --jobs 0 --no-page -o tuned": {
        "-m": "measure", "--model": "choice", "--sampler": "choice", "--space": "toml in", "--valid": "file in",
        "--test": "file in", "--seed": "seed", "--param": "choice", "--cluster": "choice",
    },
    "tune letor.txt --jobs 0 --no-page -o tuned": {"--trials": "count", "--minutes": "number"},
    "tune FILE --trials 1 --jobs 0 --no-page -o tuned": {"FILE": "file in"},
    "data split ratings.csv -o parts": {
        "--by": "choice", "--test": "fraction", "--validation": "number", "--min-rating": "number", "--k-core": "count",
        "--seed": "seed", "--format": "choice",
    },
    "data split FILE -o parts": {"FILE": "file in"},
    "data describe": {"FILE": "file in"},
    "reproduce --jobs 1 --store store": {"FILE": "file in"},
    "demo -o shown": {"--queries": "count", "--seed": "seed"},
}  # fmt: skip
WRONG["toml in"] = tuple(value for value in WRONG["file in"] if value != "empty")
WRONG["labels"] = ("x", "", "nan", "1,inf", "1,,2", "1;2", "1,1e400", ",")
WRONG["folder out"] = ("", "run.txt/x", "folder")
WRONG["format"] = ("onnx", "xgboost-json", "ranklib", "lightgbm")


def cases() -> Iterator[tuple[str, str, str, str]]:
    """Command, option, kind of value, value."""
    for command in COMMANDS:
        for option, value in wrong_values(command):
            yield command, option, COMMANDS[command][option], value


def wrong_values(command: str) -> Iterator[tuple[str, str]]:
    """Every option of a command with every wrong value."""
    for option, kind in COMMANDS[command].items():
        for value in WRONG[kind]:
            yield option, value


def command_line(command: str, option: str, value: str) -> list[str]:
    """The words of a case: the value replaces FILE or FOLDER, or follows its option."""
    words = command.split()
    if option in ("FILE", "FOLDER"):
        return [value if word == option else word for word in words] if option in words else [*words, value]
    name, *rest = option.split()
    if name == "MEASURE":
        return [*words, value, *rest]
    if rest:  # --param key
        return [*words, name, f"{rest[0]}={value}"]
    return [*words, f"{name}={value}"] if name.startswith("--") else [*words, name, value]


def write_files(folder: Path) -> None:
    """The files that the commands name: good ones, and what `WRONG` has."""
    documents, queries = range(6), range(4)
    texts = {
        "qrels.txt": "".join(f"{q} 0 d{d} {(q + d) % 3}\n" for q in queries for d in documents),
        "run.txt": "".join(f"{q} Q0 d{d} 1 {(q * d) % 5 + d / 10} a\n" for q in queries for d in documents),
        "other.txt": "".join(f"{q} Q0 d{d} 1 {(q + 2 * d) % 7} b\n" for q in queries for d in documents),
        "letor.txt": "".join(f"{(q + d) % 3} qid:{q} 1:{d} 2:{q * d % 5}\n" for q in range(12) for d in documents),
        "ratings.csv": "user,item,rating\n"
        + "".join(f"u{u},i{u * i % 7},{1 + (u + i) % 5}\n" for u in documents for i in queries),
        "empty": "",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "broken.gz").write_bytes(b"\x1f\x8b\x08\x00garbage")
    (folder / "binary").write_bytes(bytes(range(256)))
    pl.DataFrame({"qid": ["a"], "docid": ["b"], "label": [1]}).write_parquet(folder / "whole.parquet")
    (folder / "truncated.parquet").write_bytes((folder / "whole.parquet").read_bytes()[:-20])
    (folder / "whole.parquet").unlink()
    for name in ("folder", "folder.csv"):
        (folder / name).mkdir()
