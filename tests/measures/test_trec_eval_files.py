"""trec_eval's own test files: the same four decimals, per query and in the mean."""

from __future__ import annotations

import pytest

import rankbound as rb

pytestmark = pytest.mark.real_data
# Lines of trec_eval's -m all_trec that no measure of ours gives. The first three follow from others: 11pt_avg is the
# mean of IPrec@0, ..., IPrec@1, unj_k is k (1 - Judged@k), relative_P_k is the larger of P@k and R@k. The others are
# hardly used: a utility, G measures, nDCG at the number of relevant documents, the residual of RBP.
LEFT_OUT = {
    "11pt_avg", "unj_5", "unj_10", "unj_20", *(f"relative_P_{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
    "utility", "binG", "G", "ndcg_rel", "Rndcg", "set_relative_P", "set_map", "num_nonrel_judged_ret", "rbp_resid",
    "relstring_20",
}  # fmt: skip
CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
CASES = {
    "out.test": ("qrels.test", "results.test", 1, {}),
    "out.test.a": ("qrels.test", "results.test", 1, {}),
    "out.test.aq": ("qrels.test", "results.test", 1, {}),
    "out.test.aqc": ("qrels.test", "results.trunc", 1, {"missing": "zero"}),
    "out.test.aqcM": ("qrels.test", "results.trunc", 1, {"missing": "zero", "depth": 100}),
    "out.test.aql": ("qrels.rel_level", "results.test", 2, {}),
    "out.comment.test": ("qrels.comment.test.gz", "results.comment.test.gz", 1, {}),
}


def names_at_level(level):
    rel = "" if level == 1 else f"(rel={level})"
    names = {"map": f"AP{rel}", "recip_rank": f"RR{rel}", "ndcg": "nDCG", "rbp": "rbp", "Rprec": f"Rprec{rel}"}
    names |= {"num_q": "NumQ", "num_ret": "NumRet", "num_rel": f"NumRel{rel}", "num_rel_ret": f"NumRet(rel={level})"}
    names |= {"bpref": f"Bpref{rel}", "infAP": f"infAP{rel}"}
    names |= {"set_P": f"SetP{rel}", "set_recall": f"SetR{rel}", "set_F": f"SetF{rel}"}
    geometric = "mean='geometric'" if level == 1 else f"rel={level}, mean='geometric'"
    names |= {"gm_map": f"AP({geometric})", "gm_bpref": f"Bpref({geometric})"}
    names |= {f"iprec_at_recall_{x / 10:.2f}": f"IPrec{rel}@{x / 10}" for x in range(11)}
    names |= {
        f"Rprec_mult_{x / 5:.2f}": f"Rprec(mult={x / 5})" if level == 1 else f"Rprec(rel={level}, mult={x / 5})"
        for x in range(1, 11)
    }
    for k in CUTOFFS:
        names |= {f"P_{k}": f"P{rel}@{k}", f"recall_{k}": f"R{rel}@{k}"}
        names |= {f"ndcg_cut_{k}": f"nDCG@{k}", f"map_cut_{k}": f"AP{rel}@{k}"}
    return names | {f"success_{k}": f"Success{rel}@{k}" for k in (1, 5, 10)}


def have_one_rounding(name, rows):
    """Whether both versions of trec_eval ask for as many relevant documents at a recall level of these queries.

    The files are those of version 10, which rounds to the nearest number; ours is the rounding of version 9.
    """
    level = float(name.rpartition("_")[2])
    counts = [int(value) for row in rows for key, value in row.items() if key.startswith("NumRel")]
    return all(int(level * relevant + 0.9) == int(level * relevant + 0.5) for relevant in counts)


def printed_values(path):
    for line in path.read_text().splitlines():
        measure, query, value = line.split(maxsplit=2)
        if value.replace(".", "", 1).replace("-", "", 1).isdigit():
            yield measure, query, float(value)


@pytest.mark.parametrize("output", CASES)
def test_same_decimals_as_trec_eval(output, data_dir):
    folder = data_dir / "trec-eval-test"
    qrels, run, level, policy = CASES[output]
    names = names_at_level(level)
    result = rb.evaluate(folder / qrels, folder / run, [*names.values()], ties="docid", empty="zero", **policy)
    ours = {row["qid"]: row for row in result.per_query.iter_rows(named=True)} | {"all": result.mean()}
    compared = 0
    for measure, query, value in printed_values(folder / output):
        if measure.startswith("iprec_at_recall"):
            rows = [row for qid, row in ours.items() if qid == query or (query == "all" and qid != "all")]
            if not have_one_rounding(measure, rows):
                continue
        if measure in names:
            assert ours[query][names[measure]] == pytest.approx(value, abs=5.01e-5), (measure, query)
            compared += 1
    lines = {measure for measure, _, _ in printed_values(folder / output)}
    assert lines - names.keys() <= LEFT_OUT
    assert compared >= 20
