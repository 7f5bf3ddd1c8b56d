"""Static pools (gate StaticCapacity): a fixed number of machines, kept at `spec.replicas`."""
