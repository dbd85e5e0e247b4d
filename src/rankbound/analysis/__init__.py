"""What the numbers say: significance of differences, comparison of runs, meta-evaluation of measures, curves."""
