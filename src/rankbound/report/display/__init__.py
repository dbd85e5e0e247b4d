"""How each result is shown, registered for the generic functions of `rankbound.display`, which imports this package.

`tables` has the table and the page of each result, `plots` its plot; `plot.Plot` shows a chart in a notebook
without a network.
"""

from rankbound.report.display import plots as plots
from rankbound.report.display import tables as tables
