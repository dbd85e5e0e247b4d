"""Tuning: the search for a model, a loss, a bounding and parameters that rank validation queries best.

=============  ========================================================================================================
the entry      search (`tune`), progress
what is tried  space (parameters and their ranges)
a trial        study (the Optuna study in the folder of the search), trial (training and measuring one model)
where          workers (processes, Dask)
what is kept   result (the table of trials), page
=============  ========================================================================================================
"""

from __future__ import annotations

from rankbound.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
