from rankbound.testing.check import CheckReport as CheckReport
from rankbound.testing.check import Disagreement as Disagreement
from rankbound.testing.check import check_measure as check_measure
