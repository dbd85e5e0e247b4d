"""rankbound in sentence-transformers: losses for its trainer of cross-encoders, and an evaluator with intervals."""

from __future__ import annotations

from rankbound.integrations.sentence_transformers.evaluator import RankingEvaluator
from rankbound.integrations.sentence_transformers.loss import CrossEncoderRankingLoss

__all__ = ["CrossEncoderRankingLoss", "RankingEvaluator"]
