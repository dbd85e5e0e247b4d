"""Speed against peers: `python -m bench [part ...]`, or `make bench` for everything."""
