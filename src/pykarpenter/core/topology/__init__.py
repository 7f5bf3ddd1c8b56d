"""Spread, affinity and anti-affinity: which domains a pod may use, given where its peers are."""
