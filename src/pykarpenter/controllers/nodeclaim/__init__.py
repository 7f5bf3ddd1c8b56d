"""Everything that happens to a NodeClaim between its creation and its last finalizer."""
