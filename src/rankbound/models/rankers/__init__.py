"""Rankers: models that compute the scores of documents from their features."""
