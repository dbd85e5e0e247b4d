"""Quality of the rankers on real data compared with published numbers: `make models-report`."""
