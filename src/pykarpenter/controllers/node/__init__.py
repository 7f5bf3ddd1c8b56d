"""What happens to Nodes: draining, eviction and release of those that leave."""
