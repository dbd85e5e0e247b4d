"""Speed and memory against peers: one file per part, all run by `rankbound bench`.

A part's ``run(quick)`` gives findings one by one as they are made: rows (ours against a peer's), growth curves, and
peers that are not installed.
"""
