"""Mutable store fed by watch events; makes snapshots; ledger of promised capacity."""
