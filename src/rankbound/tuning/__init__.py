"""Tuning: the search for a model, a loss, a bounding and parameters that rank validation queries best.

=============  ========================================================================================================
the entry      search (`tune`), progress
what is tried  space (parameters and their ranges), sampling (random and TPE), pruning (which trials end early)
a trial        trial (training and measuring one model), workers (where trials run)
what is kept   log (the folder from which a search resumes), result (the table of trials), page
=============  ========================================================================================================
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
