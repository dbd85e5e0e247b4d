"""What the unjudged documents hide: ranges over their labels. The dual of `bounds`, which ranges over rankings."""

from rankbound.difficulty.unknown.differences import DifferenceRange, difference_ranges
from rankbound.difficulty.unknown.ranges import LabelRange, label_ranges, range_of_mean

__all__ = ["DifferenceRange", "LabelRange", "difference_ranges", "label_ranges", "range_of_mean"]
