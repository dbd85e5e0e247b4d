"""Export and import of stores: nothing is lost, nothing is trusted."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import polars as pl
import pytest

from rankbound.cli.main import run
from rankbound.errors import ArgumentError, DataError
from rankbound.studies import export_store, import_store, open_store

from .conftest import ROWS
from .test_store import outcome


@pytest.fixture
def slots(plan):
    return plan(ROWS)


@pytest.fixture
def filled(slots, tmp_path):
    """A store with a finished and a failed trial."""
    with open_store(tmp_path / "first", create=True) as store, store.locked():
        store.register("mine", slots[:2])
        store.put(slots[0].trial, outcome())
        store.put_failure(slots[1].trial, "too bad")
    return tmp_path / "first"


def content_of(folder):
    with open_store(folder) as store:
        done = [trial for trial, state in store.states().items() if state == "done"]
        return store.records(), {trial: (store.scores(trial), store.history(trial)) for trial in done}


def assert_same(first, second):
    assert first[0] == second[0]
    assert first[1].keys() == second[1].keys()
    for trial, frames in first[1].items():
        assert all(mine.equals(theirs) for mine, theirs in zip(frames, second[1][trial], strict=True))


def test_an_imported_store_holds_what_was_exported(filled, tmp_path):
    written = export_store(filled, tmp_path / "all.zip")
    assert written.to_dict() == {"studies": ["mine"], "trials": 2, "added": 2}
    assert import_store(tmp_path / "all.zip", tmp_path / "second") == written
    assert_same(content_of(filled), content_of(tmp_path / "second"))
    assert import_store(tmp_path / "all.zip", tmp_path / "second").added == 0
    assert_same(content_of(filled), content_of(tmp_path / "second"))


def test_equal_stores_give_equal_files(filled, tmp_path):
    for name in ("one.zip", "two.zip"):
        export_store(filled, tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_importing_adds_and_keeps(filled, slots, tmp_path):
    """A failed trial is replaced by a finished one; a finished one stays; the slots of a study are those of both."""
    with open_store(tmp_path / "other", create=True) as store, store.locked():
        store.register("mine", slots[1:3])
        store.put(slots[1].trial, outcome(0.75))
        store.put(slots[0].trial, outcome(0.125))
    export_store(filled, tmp_path / "filled.zip")
    export_store(tmp_path / "other", tmp_path / "other.zip")
    assert import_store(tmp_path / "other.zip", filled).added == 1
    assert import_store(tmp_path / "filled.zip", tmp_path / "other").added == 0
    with open_store(filled) as store:
        assert store.states() == {slots[0].id: "done", slots[1].id: "done"}
        assert store.scores(slots[0].id)["nDCG"][0] == 0.5
        assert store.scores(slots[1].id)["nDCG"][0] == 0.75
        assert [slot.id for slot in store.slots("mine")] == [slot.id for slot in slots[:3]]


def changed(source, target, change):
    """A copy of an exported file in which ``change`` has edited the members."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def index_edit(edit):
    def change(members):
        index = json.loads(members["store.json"])
        edit(index)
        members["store.json"] = json.dumps(index).encode()

    return change


def other_scores(members):
    name = next(name for name in members if name.startswith("scores/"))
    members[name] = members[name] + b"x"


def path_as_id(index):
    for trial in index["trials"]:
        trial["id"] = "../../outside"


def path_as_file(index):
    index["trials"][0]["files"] = json.dumps({"../outside": hashlib.sha256(b"").hexdigest()})


def text_edit(**changes):
    """Change fields of the rows of the first trial."""

    def edit(index):
        index["trials"][0].update(changes)

    return index_edit(edit)


def other_columns(members):
    """Scores without queries, signed anew."""
    name = next(name for name in members if name.startswith("scores/"))
    buffer = io.BytesIO()
    pl.DataFrame({"x": [1]}).write_parquet(buffer)
    members[name] = buffer.getvalue()
    sign_anew(members, name)


def no_parquet(members):
    name = next(name for name in members if name.startswith("history/"))
    members[name] = b"PAR1 no PAR1"
    sign_anew(members, name)


def sign_anew(members, name):
    kind, trial = name.removesuffix(".parquet").split("/")

    def edit(index):
        row = next(row for row in index["trials"] if row["id"] == trial)
        files = json.loads(row["files"]) | {kind: hashlib.sha256(members[name]).hexdigest()}
        row["files"] = json.dumps(files)

    index_edit(edit)(members)


BAD = {
    "other columns": (other_columns, "is damaged: scores must have text in the column 'qid'"),
    "no Parquet": (no_parquet, "history/.* is damaged: "),
    "half a surrogate pair": (text_edit(error="\ud800"), "must be a file of rankbound store export: .*surrogates"),
    "an error that is no text": (text_edit(error=["x"]), "the error of trial .* must be text"),
    "true seconds": (text_edit(seconds=True), "must be done or failed after some seconds"),
    "endless seconds": (text_edit(seconds=10**400), "must be done or failed after some seconds"),
    "seconds that are no number": (text_edit(seconds=float("nan")), "must be done or failed after some seconds"),
    "no means": (text_edit(metadata="{}"), "must be a file of rankbound store export: 'mean'"),
    "means that are no numbers": (text_edit(metadata='{"mean": {"AP": "x"}}'), "the means of trial .* must be numbers"),
    "a list of means": (text_edit(metadata='{"mean": [1]}'), "must be a file of rankbound store export"),
    "another schema": (index_edit(lambda index: index.update(schema=1)), "must have schema 3, got 1"),
    "an id that is a path": (index_edit(path_as_id), "the id of a trial must be the digest of its spec and data"),
    "a file that is a path": (index_edit(path_as_file), "must have metadata and the files scores, history, examples"),
    "another spec": (index_edit(lambda index: index["trials"][0].update(digest="0")), "the id of a trial must be"),
    "a slot of another trial": (index_edit(lambda index: index["slots"][0].update(trial="x")), "describes another"),
    "an unknown status": (index_edit(lambda index: index["trials"][0].update(status="new")), "must be done or failed"),
    "no index": (lambda members: members.pop("store.json"), "must be a file of rankbound store export"),
    "no JSON": (lambda members: members.update({"store.json": b"[1"}), "must be a file of rankbound store export"),
    "changed scores": (other_scores, "is damaged: its SHA-256 is not the one recorded"),
    "no scores": (lambda members: members.pop(next(n for n in members if n.startswith("scores/"))), "cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.cases(8)
def test_bad_files_are_refused_in_words(case, filled, tmp_path):
    change, message = BAD[case]
    export_store(filled, tmp_path / "good.zip")
    changed(tmp_path / "good.zip", tmp_path / "bad.zip", change)
    with pytest.raises(DataError, match=message):
        import_store(tmp_path / "bad.zip", tmp_path / "second")
    assert not (tmp_path / "second").exists()  # everything is checked before anything is written


def test_other_bad_input(filled, tmp_path):
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(DataError, match="must be a file of rankbound store export"):
        import_store(tmp_path / "text.zip", tmp_path / "second")
    with pytest.raises(DataError, match="no such file"):
        import_store(tmp_path / "none.zip", tmp_path / "second")
    with pytest.raises(ArgumentError, match=r"must be named \*\.zip"):
        export_store(filled, tmp_path / "all.tar")
    (filled / "scores").joinpath(next((filled / "scores").iterdir()).name).write_bytes(b"x")
    with pytest.raises(DataError, match="is damaged"):
        export_store(filled, tmp_path / "all.zip")
    assert not (tmp_path / "all.zip").exists()


def test_commands(capsys, filled, tmp_path):
    def printed(*arguments, code=0):
        assert run([str(argument) for argument in ("store", *arguments)]) == code
        return capsys.readouterr().out

    file, second = tmp_path / "all.zip", tmp_path / "second"
    assert printed("export", filled, "-o", file) == f"2 trials of mine written to {file}\n"
    answer = json.loads(printed("import", file, "--store", second, "--json"))
    assert answer == {"store": str(second), "file": str(file), "studies": ["mine"], "trials": 2, "added": 2}
    assert "0 of 2 trials of mine added" in printed("import", file, "--store", second)
    listed = json.loads(printed("list", second, "--json"))["studies"]
    assert listed == [{"name": "mine", "trials": 2, "done": 1, "failed": 1, "waiting": 0}]
    assert "mine" in printed("list", second)
    printed("list", tmp_path / "none", code=2)
