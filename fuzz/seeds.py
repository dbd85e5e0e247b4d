"""Small valid inputs for every target, generated on each run, so that the repository has no binary files."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fuzz.mutations import SEPARATOR

if TYPE_CHECKING:
    from rankbound.studies.trial_spec import TrialSlot

__all__ = [
    "BEIR",
    "CSV",
    "JSON",
    "LETOR",
    "MEASURES",
    "PUBLISHED",
    "RATINGS",
    "SCORES",
    "STUDY",
    "TREC",
    "archives",
    "checkpoints",
    "compressed",
    "converted",
    "distributions",
    "faces",
    "models",
    "parquet",
    "slots",
    "stores",
    "trials",
]  # fmt: skip

TREC = [
    SEPARATOR.join((b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n",
                    b"q1 Q0 d2 1 0.5 tag\nq1 Q0 d1 2 0.25 tag\nq2 Q0 d9 1 -1e-3 tag\n")),
    SEPARATOR.join((b"# c\nq1\t0  d1 1\r\n\r\nq1 0 d2 -1\r\n", b"q1 Q0 d2 1 9 a run\nq1 Q0 d1 2 8 a run")),
]  # fmt: skip
LETOR = [
    SEPARATOR.join((b"2 qid:10 1:0.5 2:1e-3 3:-7 # docid = GX0 inc = 1\n0 qid:10 1:0 2:2 3:1 # docid = GX1\n"
                    b"1 qid:2 1:1 2:1 3:1 # docid = GX2\n", b"")),
    SEPARATOR.join((b"-1 qid:1 2:NULL 5:0.25\r\n0 qid:2 1:1\n\n1 qid:1\n", b"")),
    SEPARATOR.join((b"1 1:0.5 3:2\n0 1:1\n2 2:1\n", b"2\n1\n")),
]  # fmt: skip
JSON = [
    SEPARATOR.join(
        (
            b'{"id": "q1", "expected_ids": ["a", 7], "retrieved_ids": ["b", "a"], "scores": [0.5, 1e-3]}\n',
            b'{"mteb_model_meta": {"revision": null}, "default": {"test": {"q1": {"a": 0.5, "b": -1}, "q2": {}}}}',
        )
    ),
    SEPARATOR.join(
        (b'{"qid": 3, "relevance": {"a": 2, "b": 0}, "retrieved_ids": []}\r\n\n', b'{"3": {"a": 1e2, "\\u00e9": 2}}\n')
    ),
]
RATINGS = [
    b"ratings.csv" + SEPARATOR + b'userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n1,7,"3",9\n2,31,4,1\n',
    b"u.data" + SEPARATOR + b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n196\t302\t1\t5\n",
    b"ratings.dat" + SEPARATOR + b"1::1193::5::978300760\n1::661::3::978302109\n2::661::3.5::9\n",
    b"x.inter" + SEPARATOR + b"user_id:token\titem_id:token\trating:float\ttimestamp:float\na\tx\t1\t5\nb\tx\t2\t6\n",
    b"amazon.csv" + SEPARATOR + b"A3AF8FFZAZYNE5,0000000078,5.0,1092182400\nAH2L9G3DQHHAJ,0000000116,4.0,1019865600\n",
    b"amazon18.csv" + SEPARATOR + b"0000000078,A3AF8FFZAZYNE5,5.0,1092182400\n0000000116,AH2L9G3DQHHAJ,4,1\n",
    b"users.dat" + SEPARATOR + b"3 1 2 3\n0\n1 7\n",
    b"sequences.txt" + SEPARATOR + b"u1 1 2 3 4\nu2 7 8 1 5 4\nu1 5\n",
    b"trust.txt" + SEPARATOR + b"# FromNodeId\tToNodeId\n0 1\n0\t4\n1 0 1\n",
    b"table.tsv" + SEPARATOR + b"item\tuser\tstars\nx\tbo\t1\ny\tal\t2\n",
]
BEIR = [
    SEPARATOR.join((
        b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\n",
        b'{"_id": "q1", "text": "what"}\n{"_id": "q2", "text": "who", "metadata": {}}\n',
        b'{"_id": "d1", "title": "", "text": "a \\u00e9"}\n\n{"_id": "d2", "text": "b"}\n',
    ))
]  # fmt: skip
CSV = [
    SEPARATOR.join((b"qid,docid,label\nq1,d1,1\nq1,d2,0\nq2,d1,2\n",
                    b"qid,docid,score\nq1,d2,0.5\nq1,d1,0.25\nq2,d9,-1\n")),
    SEPARATOR.join((b"user_id\titem_id\trating\n1\t5\t1.5\n1\t6\t0\n2\t5\t1\n",
                    b"qid\tdocid\tscore\tlabel\n1\t5\t1\t1\n1\t6\t2\t0\n2\t6\t3\t1\n")),
]  # fmt: skip
TABLE = [
    b"qid,docid,label,score\n1,a,1,0.5\n1,b,0,0.25\n2,a,2,1\n3,c,0,1\n3,d,1,2\n",
    b"user,item,rating,timestamp\nal,7,2.5,9\nal,8,1,8\nbo,7,1,5\n",
    b"qid,docid,label,score\n2020-01-01,1.5,true,0.5\n2020-01-02,2.5,false,1\n",
]
MEASURES = [
    b"nDCG@10", b"UL2(nDCG(dcg='exp-log2')@10)", b"AP(div='min', rel=2)@5", b"ndcg_cut_10", b"rbp.95", b"mrr@10",
    b"EM( RBP(p=0.8, gain=graded)@3 )", b"ERR(max_rel=4)@20", b"Success@1", b"DB(AP)",
    b"AP(variant='published', div='k')@4",
    b"P_5", b"EB(U(rel=1.5))", b"MM(Tau)", b"PairAcc", b"nRBP(p=0.5)", b"AP" + SEPARATOR + b"2,0,1,0,0.5",
    b"nDCG" + SEPARATOR + b"2,0,1" + SEPARATOR + b"loss=nDCG,nsr=1" + SEPARATOR + b"64,32",
    b"Rprec", b"rbp", b"UL1(DCG@3)",
]  # fmt: skip
STUDY = [
    b"""title = "T"
about = "what one should know"
[defaults]
model = "MatrixFactorization"
params = { factors = 4, epochs = 3 }
[[tables]]
name = "a"
data = { ratings = "choices.csv" }
loss = ["nDCG", { loss = "lambda-AP", name = "x", options = {} }]
bounding = ["none", { bounding = "distribution", ranker_strength = 0.75 }]
nsr = [1, 2]
measures = ["nDCG", "AP"]
grid = { learning_rate = [0.01, 0.03] }
select_by = "AP"
versus = { bounding = "none" }
[quick]
only = { nsr = 1 }
params = { epochs = 1 }
[[claims]]
claim = "c"
where = { loss = "nDCG" }
""",
    b"""title = "rows"
derived = []
[[tables]]
data = { letor = ["a.txt", "b.txt"] }
split = "query-folds"
folds = 2
prepare = { first = 5 }
measures = "nDCG@5"
selection = "test"
choose = "each"
seeds = [0, 1]
[[tables.models]]
model = "LambdaMART"
params = { n_estimators = 5 }
grid = { num_leaves = [3, 7] }
loss = "lambdarank"
[[tables.models]]
model = "AdaRank"
vary = {}
"""[: -len(b"vary = {}\n")],
    b"""title = "faces"
[[tables]]
data = { faces = "faces.npz" }
model = "RankCNN"
measures = ["pairwise accuracy"]
pairs = 10
min_gap = 3
""",
]
SCORES = [
    b"data,variant,system,fold,seed,qid,items,relevant,nDCG,AP\n"
    b"x,,a,0,0,q1,5,1,0.5,0.25\nx,,a,0,0,q2,5,2,0.75,0.5\nx,,b,0,0,q1,5,1,1,0.5\nx,,b,0,0,q2,5,2,0.5,\n",
    b"data,variant,system,fold,seed,qid,items,relevant,model,loss,bounding,nDCG@10,UL2(nDCG@10)\n"
    b"x,NSR 1,nDCG,0,0,q1,5,1,m,nDCG,none,0.5,0.1\nx,NSR 1,nDCG,0,0,q2,9,3,m,nDCG,none,0.25,-0.5\n"
    b"x,NSR 1,nDCG em,0,0,q1,5,1,m,nDCG,em,0.25,0.2\nx,NSR 1,nDCG em,0,0,q2,9,3,m,nDCG,em,1.0,0.5\n",
]
PUBLISHED = [
    b"loss,measure,published,note,fold\nnDCG,AP,0.5,,0\n,AP,0.25,other data,1\n",
    b"measure,published\nAP,0.5\nnDCG,1\n",
]


def archives() -> list[bytes]:
    """A name and an archive of that name."""
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode="w") as box:
        for name in ("set/a.txt", "set/inner/b.txt"):
            member = tarfile.TarInfo(name)
            member.size = 3
            box.addfile(member, io.BytesIO(b"abc"))
    packed = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as zipped:
            zipped.writestr("set/a.txt", "abc" * 50)
            zipped.writestr("set/inner/b.txt", "")
        packed.append(b"a.zip" + SEPARATOR + out.getvalue())
    content = tape.getvalue()[:3072]
    return [
        *packed,
        b"a.tar" + SEPARATOR + content,
        b"a.tar.gz" + SEPARATOR + gzip.compress(content, mtime=0),
        b"a.tgz" + SEPARATOR + gzip.compress(content, mtime=0),
        b"a.tar.bz2" + SEPARATOR + bz2.compress(content),
        b"a.txt.bz2" + SEPARATOR + bz2.compress(b"abc\n" * 20),
    ]


def compressed() -> list[bytes]:
    """Text, plain and packed, some of it in several members or frames."""
    import zstandard

    text = b"one two\nthree\n\nfour five six\n" * 3
    zst = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    return [text, gzip.compress(text, mtime=0), gzip.compress(text, mtime=0) * 2, zst, zst + zst, b""]


def parquet() -> list[bytes]:
    """Tables as text, to be written by the target, and files that were written already."""
    found = list(TABLE)
    for text in TABLE[:2]:
        for compression in ("uncompressed", "zstd", "snappy"):
            out = io.BytesIO()
            pl.read_csv(text).write_parquet(out, compression=compression, row_group_size=2)  # type: ignore[arg-type]
            found.append(out.getvalue())
    return found


def faces() -> list[bytes]:
    """A file's name and the file: images, a tape of images, arrays."""
    from PIL import Image

    images = {}
    for kind in ("JPEG", "PNG"):
        for mode in ("RGB", "L", "P") if kind == "PNG" else ("RGB", "L", "CMYK"):
            out = io.BytesIO()
            Image.new(mode, (12, 9), 3).save(out, kind)
            images[kind, mode] = out.getvalue()
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode="w") as box:
        for name in ("f/00001A10.jpg", "f/00002A20.png"):
            content = images["JPEG" if name.endswith("jpg") else "PNG", "L"]
            member = tarfile.TarInfo(name)
            member.size = len(content)
            box.addfile(member, io.BytesIO(content))
    arrays = {"images": np.zeros((2, 3, 3), np.uint8), "age": np.array([3, 40]), "person_id": np.array([1, 2])}
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **arrays, train_split=np.array([True, False]))
    np.savez_compressed(packed, **arrays)
    return [
        *(b"26_1_0_2017." + kind.lower().encode() + SEPARATOR + content for (kind, _), content in images.items()),
        b"00012A34.jpeg" + SEPARATOR + images["PNG", "L"],
        b"faces.tar" + SEPARATOR + tape.getvalue()[:5632],
        b"faces.npz" + SEPARATOR + plain.getvalue(),
        b"faces.npz" + SEPARATOR + packed.getvalue(),
    ]


def converted() -> list[bytes]:
    """The files of a cache entry, one after the other: labels, offsets, qids, features, notes."""
    columns = (np.array([1, 0, 2], np.int32), np.array([0, 2, 3]), np.array([7, 9]), np.ones((3, 2), np.float32))
    codes = np.array([0, 0, 1], np.int32)
    ratings = (codes, codes[::-1].copy(), np.array(["a", "b"]), np.array([5, 6]), np.ones(3, np.float32))
    found = []
    for kind, arrays in ((b"letor", columns), (b"ratings", ratings)):
        files = []
        for array in arrays:
            out = io.BytesIO()
            np.save(out, array)
            files.append(out.getvalue())
        found.append(SEPARATOR.join((kind, b'["a note"]', *files)))
    return found


@cache
def models() -> list[bytes]:
    """Model folders: the index and then its files in the order of their names."""
    from rankbound.models import (
        AdaRank,
        LambdaMART,
        LogisticRanker,
        MatrixFactorization,
        MLPRanker,
        RandomForestRanker,
        RankBoost,
        RankCNN,
        RegressionRanker,
    )  # fmt: skip

    random = np.random.default_rng(0)
    X, qid = random.random((24, 3)), np.repeat(np.arange(4), 6)
    y = (X[:, 0] * 3).astype(int)
    rankers: list[Any] = [
        AdaRank(n_estimators=2), LambdaMART(n_estimators=2, min_child_samples=1, num_leaves=4),
        RankBoost(n_estimators=3),
        RandomForestRanker("classification", n_estimators=1, num_leaves=3, min_child_samples=1), LogisticRanker(),
        MLPRanker(hidden=(2,), epochs=1), RegressionRanker(),
    ]  # fmt: skip
    fitted = [ranker.fit(X, y, qid=qid) for ranker in rankers]
    fitted.append(RankCNN(channels=(1,), hidden=(2,), epochs=1).fit(random.random((12, 64)), y[:12], qid=qid[:12]))
    pairs = np.stack((np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3)), axis=1)
    fitted.append(MatrixFactorization(factors=2, epochs=1).fit(pairs[:, 0], pairs[:, 1], pairs.sum(axis=1) % 2))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for at, ranker in enumerate(fitted):
            ranker.save(Path(folder) / str(at))
            index = json.loads((Path(folder) / str(at) / "model.json").read_bytes())
            del index["sha256"]
            files = [(Path(folder) / str(at) / name).read_bytes() for name in sorted(index["files"])]
            index["files"] = sorted(index["files"])
            found.append(SEPARATOR.join((json.dumps(index).encode(), *files)))
    return found


def checkpoints() -> list[bytes]:
    """Metadata and arrays of a step."""
    from safetensors.numpy import save

    record = {"training": {"model": "x", "seed": 1}, "metadata": {"epoch": 3, "history": [0.5]}}
    arrays = {"weights": np.ones((2, 2), np.float32), "state": np.arange(3)}
    return [SEPARATOR.join((json.dumps(record).encode(), save(arrays)))]


def slots() -> list[TrialSlot]:
    """Two trials of a study that differ in their bounding."""
    from rankbound.studies.sources import Source
    from rankbound.studies.trial_spec import FORMAT, SelectionRule, Trial, TrialSlot, TrialSpec

    rule = SelectionRule("validation", "nDCG", "one", ("nDCG",), (("bounding", "none"),))
    made = []
    for bounding in ("none", "min-max"):
        spec = TrialSpec(
            format=FORMAT, kind="letor", data="x", split="given", folds=0, fold=0, model="AdaRank", bounding=bounding,
            seed=0, selection="validation", select_by="nDCG", measures=("nDCG",),
        )  # fmt: skip
        setting = {"table": "t", "data": "x", "model": "AdaRank", "bounding": bounding}
        made.append(TrialSlot(Trial(spec, Source("letor", "x", True), "d"), setting, f"AdaRank {bounding}", "", rule))
    return made


@cache
def stores() -> list[bytes]:
    """The database of a store, and scores and history of its trials."""
    from rankbound.studies.store import open_store
    from rankbound.studies.trial import Outcome

    scores = pl.DataFrame({"qid": ["a", "b"], "items": [4, 5], "relevant": [1, 2], "nDCG": [0.5, 0.75]})
    history = pl.DataFrame({"epoch": [1, 2], "quantity": ["loss", "loss"], "value": [0.5, 0.25]})
    with tempfile.TemporaryDirectory() as name:
        with open_store(name, create=True) as store:
            for slot in slots():
                store.put(slot.trial, Outcome(scores, history, {"eval_score": 0.5}, 1.0))
            store.register("study", slots())
            store._connection.execute("PRAGMA journal_mode = DELETE")
            store._connection.execute("PRAGMA page_size = 512")
            store._connection.execute("VACUUM")
        folder, file = Path(name), f"{slots()[0].id}.parquet"
        files = [folder / "trials.sqlite", folder / "scores" / file, folder / "history" / file]
        return [SEPARATOR.join(file.read_bytes() for file in files)]


def trials() -> list[bytes]:
    """Scores, history and metadata of a trial."""
    scores = b"qid,items,relevant,nDCG,AP\na,4,1,0.5,0.25\nb,5,2,0.75,1.0\n"
    history = b"epoch,quantity,value\n1,loss,0.5\n2,eval nDCG,0.25\n"
    metadata = {"eval_score": 0.5, "kept_epoch": 2, "queries": 2, "mean": {"nDCG": 0.625, "AP": 0.625}}
    return [SEPARATOR.join((scores, history, json.dumps(metadata).encode()))]


def distributions() -> list[bytes]:
    """A distribution as the cache keeps it."""
    out = io.BytesIO()
    np.savez(out, scores=np.array([0.25, 0.5]), probabilities=np.array([0.5, 0.5]), method=np.array("closed"))
    return [out.getvalue()]
