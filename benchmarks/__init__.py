"""Measurements of dplateau beside its peers; `python -m benchmarks --help` runs them."""
