"""Structural schemas of custom resources: defaults, pruning, validation and CEL rules, as an API server does them."""
