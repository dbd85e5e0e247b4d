"""The distribution of a measure when the documents of a query are ranked at random.

`single` answers for one query (`rankbound.distribution`), `many` for all queries of a data set at once. The other
modules compute distributions: by closed forms, by enumerating or sampling arrangements, and by dynamic programs.
"""

from rankbound.difficulty.distribution.single import Distribution, distribution

__all__ = ["Distribution", "distribution"]
