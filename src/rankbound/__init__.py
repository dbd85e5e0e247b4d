"""rankbound: learning to rank that knows how hard each query is.

>>> import rankbound as rb
>>> rb.evaluate({"q": {"a": 1, "b": 0}}, {"q": {"a": 0.9, "b": 0.1}}, ["nDCG@10"]).mean()
{'nDCG@10': 1.0}
>>> rb.bounds("AP", n=2, relevant=1)
Bounds(worst=0.5, expected=0.75, best=1.0)
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_exports(__name__, "__version__")
