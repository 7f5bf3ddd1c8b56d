"""Machines without a cloud: a NodeClaim becomes a Node object, kept alive by simulated kubelets."""
