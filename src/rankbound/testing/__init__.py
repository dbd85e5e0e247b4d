"""For tests of rankbound and of what is built on it: slow oracles, and strategies for Hypothesis."""
