"""Figures of pages: `drawing` says what one is, `catalog` has the table of them, other modules draw with altair."""
