"""Measurements with targets: `python -m benchmarks [names…]`."""
