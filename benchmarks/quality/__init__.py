"""Quality of the rankers on real data beside published numbers: `make models-report`."""
