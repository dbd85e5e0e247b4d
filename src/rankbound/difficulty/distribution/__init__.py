"""The distribution of a measure when the documents of a query are ranked at random.

`single` answers for one query (`rankbound.distribution`), `many` for all queries of a data set at once. The other
modules are the ways to compute a distribution: closed forms, enumeration and sampling of arrangements, dynamic
programs.
"""

from rankbound.difficulty.distribution.single import Distribution, distribution

__all__ = ["Distribution", "distribution"]
