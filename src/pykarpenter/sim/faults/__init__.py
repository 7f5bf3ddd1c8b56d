"""Faults on purpose: where they enter, how they are drawn from a seed, and how a failing run is made short."""
