from rankbound.testing.assertions import assert_no_regression as assert_no_regression
from rankbound.testing.check import check_measure as check_measure
from rankbound.testing.report import CheckReport as CheckReport
from rankbound.testing.report import Disagreement as Disagreement
