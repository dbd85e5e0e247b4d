"""Losses and the evaluator in sentence-transformers: its own trainer, on a small cross-encoder with random weights."""

from __future__ import annotations

import csv
import json
import logging
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported: no test may reach for the model hub

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SparseEncoder,
)
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from sentence_transformers.cross_encoder import losses as library
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, PreTrainedTokenizerFast

import rankbound as rb
from rankbound.errors import ArgumentError, DataError, InferenceWarning, MeasureError
from rankbound.integrations import CrossEncoderRankingLoss, RankingEvaluator
from rankbound.losses import APLoss, NDCGLoss, get_loss, warm_up

pytestmark = pytest.mark.full("needs a tool that only .venv-all has")

TOPICS = "abcdef"
WORDS = [f"{topic}{number}" for topic in TOPICS for number in range(4)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


# ---- a small model and a small task ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    warm_up("softmax", "nDCG", "RankNet")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved cross-encoder: one layer of BERT, and a tokenizer with a word per token."""
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names)
    torch.manual_seed(0)
    settings = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, num_labels=1, **settings, **dropout)
    root = tmp_path_factory.mktemp("models")
    for name, network in (("cross", BertForSequenceClassification), ("words", BertForMaskedLM)):
        network(config).save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


def load(folder):
    return CrossEncoder(str(folder / "cross"), device="cpu", local_files_only=True)


@pytest.fixture
def model(folder):
    return load(folder)


def task(queries, seed):
    """Documents of four words; the label is the number of words on the topic of the query, at most 2."""
    rng = np.random.default_rng(seed)
    samples = []
    for _ in range(queries):
        topic = TOPICS[rng.integers(len(TOPICS))]
        own = [word for word in WORDS if word[0] == topic]
        documents = [[*rng.choice(WORDS, 2), *rng.choice(own if rng.random() < 0.3 else WORDS, 2)]
                     for _ in range(rng.integers(5, 11))]  # fmt: skip
        labels = [min(sum(word in own for word in words), 2) for words in documents]
        texts = [" ".join(words) for words in documents]
        samples.append({"query": str(rng.choice(own)), "documents": texts, "labels": labels})
    return samples


TRAIN, TEST = task(240, seed=1), task(60, seed=2)


def binary(samples):
    """The same with the keys of the library's evaluator; the order of the documents is a ranking of a first stage."""
    out = []
    for sample in samples:
        marked = list(zip(sample["documents"], sample["labels"], strict=True))
        positive = list(dict.fromkeys(text for text, label in marked if label))
        documents = list(dict.fromkeys(sample["documents"]))
        if positive and len(positive) < len(documents):
            out.append({"query": sample["query"], "positive": positive, "documents": documents})
    return out


def arguments(folder, **changes):
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": 8, "learning_rate": 5e-3, "report_to": "none",
        "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_strategy": "no", "seed": 3,
        "dataloader_pin_memory": False,
    }  # fmt: skip
    return CrossEncoderTrainingArguments(**settings | changes)


# ---- the loss --------------------------------------------------------------------------------------------------------


def test_the_trainer_learns_and_keeps_the_best_model(model, folder, tmp_path):
    evaluator = RankingEvaluator(TEST, ["EM(nDCG@10)", "nDCG@10"], name="dev")
    trainer = CrossEncoderTrainer(
        model=model,
        args=arguments(
            tmp_path, num_train_epochs=8, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
            metric_for_best_model=f"eval_{evaluator.primary_metric}", greater_is_better=evaluator.greater_is_better,
            save_total_limit=1,
        ),
        train_dataset=Dataset.from_list(TRAIN),
        loss=CrossEncoderRankingLoss(model, "softmax", mini_batch_size=0),
        evaluator=evaluator,
    )  # fmt: skip
    before = trainer.evaluate()["eval_dev_EM(nDCG@10)"]
    trainer.train()
    history = [entry["eval_dev_EM(nDCG@10)"] for entry in trainer.state.log_history if "eval_dev_nDCG@10" in entry]
    assert before < 0.2
    assert max(history) > 0.6
    after = evaluator(model, epoch=9, steps=9)["dev_EM(nDCG@10)"]
    assert after == pytest.approx(max(history), abs=1e-6)  # the best model was loaded

    row = evaluator.compare(load(folder), model, names=["random weights", "trained"]).rows[0]
    assert row.measure == "EM(nDCG@10)"
    assert row.difference == pytest.approx(after - before, abs=1e-9)
    assert row.p_corrected < 1e-4

    results = pl.read_csv(tmp_path / "eval" / "RankingEvaluator_dev_results.csv")
    assert results["measure"].to_list() == ["EM(nDCG@10)", "nDCG@10"] * (1 + len(history))
    assert results["mean"].to_list()[::2] == pytest.approx([before, *history])
    assert (tmp_path / "eval" / "RankingEvaluator_dev_queries_8_240.csv").exists()

    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "CrossEncoderRankingLoss" in card
    assert '"loss": "SoftmaxLoss"' in card
    assert "@software{rankbound" in card
    assert "EM(nDCG@10)" in card


LOSSES = [
    ("nDCG", {}), ("nDCG@5", {"bounding": "expectation-max"}), ("AP", {}), ("AP", {"bounding": "min-max"}),
    ("lambda-nDCG", {}), ("lambda-nDCG", {"bounding": "expectation-max"}), ("lambda-AP", {}), ("softmax", {}),
    ("RankNet", {"reduction": "sum"}), ("nDCG", {"bounding": "log-distribution"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), LOSSES, ids=str)
def test_a_step_is_that_of_the_loss_computed_directly(model, tmp_path, name, options):
    """One step of SGD with rate 1 moves each weight by its gradient."""
    batch = TRAIN[:4]
    before = [weight.detach().clone() for weight in model.parameters()]
    pairs = [(sample["query"], text) for sample in batch for text in sample["documents"]]
    scores = model(model.preprocess(pairs))["scores"].view(-1)
    labels = np.concatenate([sample["labels"] for sample in batch])
    offsets = np.cumsum([0, *(len(sample["labels"]) for sample in batch)])
    value = get_loss(name, **options)(scores, labels, offsets)
    expected = torch.autograd.grad(value, list(model.parameters()))
    trainer = CrossEncoderTrainer(
        model=model,
        args=arguments(
            tmp_path, max_steps=1, learning_rate=1.0, lr_scheduler_type="constant", optim="sgd", max_grad_norm=0.0
        ),
        train_dataset=Dataset.from_list(batch),
        loss=CrossEncoderRankingLoss(model, name, mini_batch_size=5, **options),
    )
    result = trainer.train()
    assert result.training_loss == pytest.approx(value.item(), abs=1e-5)
    largest = max(gradient.abs().max().item() for gradient in expected)
    assert largest > 1e-4
    for weight, start, gradient in zip(model.parameters(), before, expected, strict=True):
        torch.testing.assert_close(start - weight.detach(), gradient, atol=1e-3 * largest, rtol=0)


@pytest.mark.parametrize("size", [None, 0, -1, 3])
def test_mini_batches_do_not_change_the_loss(model, size):
    inputs = [[sample["query"] for sample in TRAIN[:3]], [sample["documents"] for sample in TRAIN[:3]]]
    labels = [torch.tensor(sample["labels"]) for sample in TRAIN[:3]]
    whole = CrossEncoderRankingLoss(model, "AP", mini_batch_size=0)(inputs, labels)
    parts = CrossEncoderRankingLoss(model, "AP", mini_batch_size=size)(inputs, labels)
    assert parts.item() == pytest.approx(whole.item(), abs=1e-6)
    as_floats = CrossEncoderRankingLoss(model, "AP")(inputs, [row.float() for row in labels])
    assert as_floats.item() == pytest.approx(whole.item(), abs=1e-6)


def test_list_net_is_that_of_the_library(model):
    """The library's ListNet takes the softmax of labels as target, as ours does."""
    inputs = [[sample["query"] for sample in TRAIN[:3]], [sample["documents"] for sample in TRAIN[:3]]]
    labels = [torch.tensor(sample["labels"]) for sample in TRAIN[:3]]
    theirs = library.ListNetLoss(model, mini_batch_size=-1)(inputs, labels)
    ours = CrossEncoderRankingLoss(model, "ListNet", mini_batch_size=-1)(inputs, labels)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("NDCG-Loss2++", library.NDCGLoss2PPScheme()),
        ("NDCG-Loss2", library.NDCGLoss2Scheme()),
        ("lambda-nDCG", library.LambdaRankScheme()),
        ("RankNet", library.NoWeightingScheme()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lambda_losses_have_the_direction_of_those_of_the_library(model, name, scheme):
    """On one query the gradients differ by a factor: the library divides by the number of pairs and by log 2."""
    inputs, labels = [[TRAIN[0]["query"]], [TRAIN[0]["documents"]]], [torch.tensor(TRAIN[0]["labels"])]
    losses = library.LambdaLoss(model, scheme, mini_batch_size=-1), CrossEncoderRankingLoss(model, name)
    weights = list(model.parameters())
    theirs, ours = (
        torch.cat([part.flatten() for part in torch.autograd.grad(loss(inputs, labels), weights)]) for loss in losses
    )
    assert torch.cosine_similarity(theirs, ours, dim=0).item() > 1 - 1e-5


def test_half_precision_is_widened_before_the_loss(model):
    inputs, labels = [[TRAIN[0]["query"]], [TRAIN[0]["documents"]]], [torch.tensor(TRAIN[0]["labels"])]
    loss = CrossEncoderRankingLoss(model, "nDCG")
    exact = loss(inputs, labels).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(inputs, labels)
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact, abs=0.01)
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)


def test_the_activation_is_applied_before_the_loss(model):
    inputs, labels = [["a1"], [["a1 b1", "b1 c1", "c1 a2"]]], [torch.tensor([2, 0, 1])]
    scores = model(model.preprocess([("a1", text) for text in inputs[1][0]]))["scores"].view(-1)
    loss = CrossEncoderRankingLoss(model, NDCGLoss(), activation_fn=torch.nn.Tanh())
    assert loss(inputs, labels).item() == pytest.approx(NDCGLoss()(scores.tanh(), [2, 0, 1], [0, 3]).item(), abs=1e-6)


def test_a_batch_without_an_informative_query_has_no_gradient(model):
    loss = CrossEncoderRankingLoss(model, "nDCG")([["a1", "b1"], [["a1", "a2"], ["b1"]]], [[0, 0], [1]])
    loss.backward()
    assert loss.item() == 0
    assert all(weight.grad is None or not weight.grad.any() for weight in model.parameters())


def test_settings_of_a_loss_are_ready_for_the_model_card(model):
    loss = CrossEncoderRankingLoss(model, "nDCG@10", bounding="expectation-max", mini_batch_size=16)
    settings = json.loads(json.dumps(loss.get_config_dict()))
    assert settings["loss"] == "NDCGLoss"
    assert (settings["k"], settings["bounding"], settings["mini_batch_size"]) == (10, "expectation-max", 16)
    assert settings["activation_fn"].endswith("Identity")
    assert "westerborg2022bounding" in loss.citation
    assert "westerborg" not in CrossEncoderRankingLoss(model, "lambda-nDCG").citation
    assert "version={" + rb.__version__ + "}" in loss.citation


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        ([["a1", "b1"], [["a1"], ["b1", "b2"]]], [[1], [1, 0, 0]], r"query 'b1': labels .* per document, 2, got 3"),
        ([["a1", "b1"], [["a1"], []]], [[1], []], "query 'b1': documents must have at least one document, got none"),
        ([["a1"], ["a1"]], [[1]], "query 'a1': documents must be a list of documents, got 'a1'"),
        ([["a1"], [["a1"]], ["b1"]], [[1]], "inputs must be a column of queries .* got 3 columns"),
        ([["a1"], [["a1"]]], torch.tensor([1]), r"labels must be a list of labels .* got one number per query"),
        ([["a1"], [["a1"]]], None, "labels must be a list of labels for each query, in a column 'labels', got none"),
        ([["a1"], [["a1"]]], [[1], [0]], "must have the same length, got 1 queries, 1 lists of documents and 2 of"),
        ([["a1"], [["a1", "a2"]]], [[1, float("nan")]], "labels must be finite"),
    ],
)  # fmt: skip
def test_a_bad_batch_is_one_clear_error(model, inputs, labels, message):
    with pytest.raises(DataError, match=message):
        CrossEncoderRankingLoss(model)(inputs, labels)


def test_bad_settings_of_a_loss_are_refused(model):
    with pytest.raises(ArgumentError, match=r"loss must be one of nDCG, .* got 'no-loss'"):
        CrossEncoderRankingLoss(model, "no-loss")
    with pytest.raises(ArgumentError, match="options need the name of a loss, got APLoss and bounding"):
        CrossEncoderRankingLoss(model, APLoss(), bounding="min-max")
    with pytest.raises(ArgumentError, match="reduction must be 'mean' or 'sum' in training, got 'none'"):
        CrossEncoderRankingLoss(model, APLoss(reduction="none"))
    with pytest.raises(ArgumentError, match=r"mini_batch_size must be an integer or None, got 2\.5"):
        CrossEncoderRankingLoss(model, mini_batch_size=2.5)
    with pytest.raises(ArgumentError, match="model must be a CrossEncoder with one output, got Linear"):
        CrossEncoderRankingLoss(torch.nn.Linear(2, 1))


# ---- the evaluator ---------------------------------------------------------------------------------------------------


def test_groups_are_in_results_file_and_comparison(model, tmp_path):
    named = {f"q{index}": sample for index, sample in enumerate(TEST)}
    topics = {name: sample["query"][0] for name, sample in named.items()}
    evaluator = RankingEvaluator(named, ["EM(nDCG@10)", "RR"], name="dev", groups=topics)
    results = evaluator(model, str(tmp_path))
    rows = evaluator.evaluation.by_group
    means = {f"dev_{row.measure}_group={row.group}": row.mean for row in rows if row.measure in evaluator.measures}
    assert len(means) == 2 * len(set(topics.values()))
    assert {name: results[name] for name in means} == pytest.approx(means, abs=1e-12)
    assert results["dev_RR_worst_group"] == min(value for name, value in means.items() if "_RR_" in name)
    file = pl.read_csv(tmp_path / "RankingEvaluator_dev_results.csv")
    assert {f"dev_{name}" for name in file["measure"]} == {*means, "dev_EM(nDCG@10)", "dev_RR"}
    assert file["queries"].sum() == 2 * 2 * 60 - 2 * 2 * evaluator.evaluation.empty_queries
    assert {row.group for row in evaluator.compare(model, model).by_group} == set(topics.values())
    with pytest.raises(DataError, match="do the query ids match"):
        RankingEvaluator(named, groups={"elsewhere": "a"})


def test_measures_are_those_of_evaluate(model):
    evaluator = RankingEvaluator(TEST, ["nDCG@10", "EM(AP)", "RR"])
    assert isinstance(evaluator, BaseEvaluator)
    results = evaluator(model)
    scores = {(sample["query"], text): None for sample in TEST for text in sample["documents"]}
    scores = dict(zip(scores, model.predict(list(scores), activation_fn=torch.nn.Identity()), strict=True))
    lists = rb.Lists(
        np.concatenate([sample["labels"] for sample in TEST]),
        np.cumsum([0, *(len(sample["labels"]) for sample in TEST)]),
        [scores[sample["query"], text] for sample in TEST for text in sample["documents"]],
    )
    expected = rb.evaluate(lists, measures=["nDCG@10", "EM(AP)", "RR"])
    for name, (low, high) in expected.interval().items():
        assert results[name] == pytest.approx(expected.mean()[name], abs=1e-5)
        assert (results[f"{name}_low"], results[f"{name}_high"]) == pytest.approx((low, high), abs=1e-4)
    assert set(results) == {f"{name}{end}" for name in expected.measures for end in ("", "_low", "_high")}
    assert results[evaluator.primary_metric] == results["nDCG@10"]


def test_plain_measures_are_those_of_the_library_evaluator(model):
    samples = binary(TEST)
    theirs = CrossEncoderRerankingEvaluator(samples, at_k=10, write_csv=False)(model)
    evaluator = RankingEvaluator(samples, ["nDCG@10", "AP", "RR@10"])
    ours = evaluator(model)
    for our_name, their_name in (("nDCG@10", "ndcg@10"), ("AP", "map"), ("RR@10", "mrr@10")):
        assert ours[our_name] == pytest.approx(theirs[their_name], abs=1e-6)
        assert ours[f"base_{our_name}"] == pytest.approx(theirs[f"base_{their_name}"], abs=1e-6)
    negatives = [
        {"query": sample["query"], "positive": sample["positive"],
         "negative": [text for text in sample["documents"] if text not in sample["positive"]]}
        for sample in samples
    ]  # fmt: skip
    assert RankingEvaluator(negatives, ["AP"])(model) == pytest.approx(
        {key: value for key, value in ours.items() if key.startswith("AP")}, abs=1e-6
    )


def test_a_comparison_with_the_first_stage(model):
    evaluator = RankingEvaluator(binary(TEST), ["EM(nDCG)", "AP"])
    results = evaluator(model)
    comparison = evaluator.compare(model, first_stage=True)
    assert comparison.runs == ("first stage", "model 1")
    assert comparison.rows[1].difference == pytest.approx(results["AP"] - results["base_AP"], abs=1e-9)
    assert sum(row.queries for row in comparison.by_type if row.measure == "AP") == len(binary(TEST))


def test_relevant_documents_that_the_first_stage_missed(model):
    samples = [{"query": "a1", "positive": ["a1 a2", "a3"], "documents": ["a1 a2", "b1", "c1"]}] * 12
    always, returned = (
        RankingEvaluator(samples, ["R@9", "AP"], always_rerank_positives=kept) for kept in (True, False)
    )
    assert always(model)["R@9"] == 1
    assert returned(model)["R@9"] == 1 / 2  # the other relevant document is not ranked, and counts
    assert always(model)["base_AP"] == returned(model)["base_AP"] == 1 / 2  # rank 1, and never
    assert returned.scored_lists(model).depths.tolist() == [3] * 12


def test_ids_types_and_values_of_queries(model, tmp_path, caplog):
    named = {f"q{number}": sample for number, sample in enumerate(TEST)}
    evaluator = RankingEvaluator(named, ["nDCG@10", "EM(nDCG@10)"], primary_measure="EM(nDCG@10)", name="dev")
    with pytest.raises(ArgumentError, match="per_query needs an evaluation"):
        _ = evaluator.per_query
    with caplog.at_level(logging.INFO, logger="rankbound"):
        results = evaluator(model, output_path=str(tmp_path / "out"), epoch=1.5, steps=30)
    assert evaluator.primary_metric == "dev_EM(nDCG@10)"
    frame = evaluator.per_query
    assert frame["qid"].to_list() == list(named)
    assert frame["query"].to_list() == [sample["query"] for sample in TEST]
    assert frame["EM(nDCG@10)"].mean() == pytest.approx(results["dev_EM(nDCG@10)"])
    gain = (frame["nDCG@10"] - frame["nDCG@10 expected"]) / (frame["nDCG@10 best"] - frame["nDCG@10 expected"])
    assert (frame["type"] == "ideal").to_list() == [value >= 0.5 for value in gain]
    assert pl.read_csv(tmp_path / "out" / "RankingEvaluator_dev_queries_1.5_30.csv")["type"].to_list() == (
        frame["type"].to_list()
    )
    assert "types of queries by EM(nDCG@10)" in caplog.text
    evaluator(model, output_path=str(tmp_path / "out"))
    lines = (tmp_path / "out" / "RankingEvaluator_dev_results.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert [(row["epoch"], row["measure"]) for row in rows] == [
        (epoch, name) for epoch in ("1.5", "-1") for name in ("nDCG@10", "EM(nDCG@10)")
    ]
    assert float(rows[0]["low"]) == pytest.approx(results["dev_nDCG@10_low"])
    assert json.dumps(evaluator.get_config_dict())


def test_policies_of_inference_and_of_empty_queries(model):
    samples = [*TEST[:20], {"query": "a1", "documents": ["b1", "c1"], "labels": [0, 0]}]
    narrow = RankingEvaluator(samples, "AP", inference=rb.Inference(confidence=0.5))(model)
    wide = RankingEvaluator(samples, "AP", inference=rb.Inference(confidence=0.99, interval="t"))(model)
    assert wide["AP_low"] < narrow["AP_low"] < narrow["AP"] < narrow["AP_high"] < wide["AP_high"]
    assert RankingEvaluator(samples, "AP", empty="zero")(model)["AP"] == pytest.approx(narrow["AP"] * 20 / 21)


def test_few_queries_warn_and_one_has_no_interval(model):
    with pytest.warns(InferenceWarning, match="fewer than 10"):
        assert set(RankingEvaluator(TEST[:1], "nDCG")(model)) == {"nDCG"}


def test_high_scores_are_not_made_ties_by_a_sigmoid(model):
    with torch.no_grad():
        model[0].model.classifier.bias += 100.0  # the sigmoid of all scores is 1 in 32 bits
    assert len(np.unique(model.predict([("a1", "a1"), ("a1", "b1 c1")]))) == 1
    assert len(np.unique(RankingEvaluator(TEST, "AP").scored_lists(model).scores)) > 100


def test_several_evaluators_in_sequence(model):
    parts = [RankingEvaluator(TEST[:20], "AP", name="first"), RankingEvaluator(TEST[20:], "RR", name="second")]
    results = SequentialEvaluator(parts)(model)
    assert results["sequential_score"] == results["second_RR"]
    assert "first_AP_low" in results


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")  # by torch; the library filters it too
@pytest.mark.parametrize("kind", [SentenceTransformer, SparseEncoder])
def test_encoders_are_evaluated_by_the_similarity_of_their_vectors(folder, kind):
    encoder = kind(str(folder / "words"), device="cpu", local_files_only=True)
    evaluator = RankingEvaluator(TEST, ["nDCG@10"])
    lists = evaluator.scored_lists(encoder)
    sample = TEST[7]
    items = slice(*lists.offsets[7:9])
    similarity = encoder.similarity(
        encoder.encode_query([sample["query"]]), encoder.encode_document(sample["documents"])
    )
    assert lists.scores[items] == pytest.approx(similarity.to_dense().numpy(force=True)[0], abs=1e-5)
    assert evaluator(encoder)["nDCG@10"] == pytest.approx(rb.evaluate(lists, measures="nDCG@10").mean()["nDCG@10"])


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"documents": ["a"], "labels": [1]}, "sample 0: must be a dict with the key 'query'"),
        ("text", "sample 0: must be a dict with the key 'query', got 'text'"),
        ({"query": "a", "positive": ["a"]}, r"sample 0: must have the keys .* got 'positive'"),
        ({"query": "a", "positive": ["a"], "negative": ["b"], "documents": ["a"]}, "got 'positive', 'negative', 'doc"),
        ({"query": "a", "documents": ["a", "b"], "labels": [1]}, "sample 0: labels must have one entry .*, 2, got 1"),
        ({"query": "a", "documents": [], "labels": []}, "sample 0: documents must have at least one document"),
        ({"query": "a", "documents": "a", "labels": [1]}, "sample 0: documents must be a list of documents, got 'a'"),
        ({"query": "a", "positive": [], "negative": []}, "sample 0: positive and negative must have at least one"),
    ],
)  # fmt: skip
def test_bad_samples_are_one_clear_error(sample, message):
    with pytest.raises(DataError, match=message):
        RankingEvaluator([sample])


def test_bad_settings_of_the_evaluator_are_refused(model):
    with pytest.raises(DataError, match="samples must have at least one sample, got none"):
        RankingEvaluator([])
    with pytest.raises(MeasureError, match="nDGC"):
        RankingEvaluator(TEST, "nDGC@10")
    with pytest.raises(ArgumentError, match=r"measures must not need reference runs, as STD does, got STD\(AP\)"):
        RankingEvaluator(TEST, ["AP", "STD(AP)"])
    with pytest.raises(ArgumentError, match="primary_measure must be one of AP, RR, got 'nDCG'"):
        RankingEvaluator(TEST, ["AP", "RR"], primary_measure="nDCG")
    nothing_relevant = [{"query": "a1", "documents": ["b1", "c1"], "labels": [0, 0]}] * 3
    with pytest.raises(DataError, match="AP is not defined for any of the 3 samples"):
        RankingEvaluator(nothing_relevant, "AP")
    with pytest.raises(ArgumentError, match="model must be a cross-encoder or an encoder, got object"):
        RankingEvaluator(TEST, "AP")(object())
    with pytest.raises(ArgumentError, match="names must have one entry per model, 2, got 1"):
        RankingEvaluator(TEST, "AP").compare(model, model, names=["one"])
    with pytest.raises(DataError, match="the ranking of a first stage needs samples with 'positive' and 'documents'"):
        RankingEvaluator(TEST, "AP").compare(model, first_stage=True)


# ---- imports ---------------------------------------------------------------------------------------------------------


def test_importing_the_module_is_light_and_a_missing_package_names_the_extra():
    code = """
import sys
from rankbound.integrations import CrossEncoderRankingLoss, RankingEvaluator
assert not {"sentence_transformers", "transformers", "datasets"} & set(sys.modules)
sys.modules["sentence_transformers"] = None
class Model:
    num_labels = 1
for create in (lambda: CrossEncoderRankingLoss(Model()), lambda: RankingEvaluator([])):
    try:
        create()
    except ImportError as error:
        assert 'pip install ".[sentence-transformers]"' in str(error), error
    else:
        raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
