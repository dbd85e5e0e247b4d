"""Recommenders: models of users and items, and their evaluation by full ranking."""
