"""Slow oracles and Hypothesis strategies, for the tests of rankbound and of packages that build on it."""
