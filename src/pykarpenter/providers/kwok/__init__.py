"""Provider `kwok`: simulated machines in a real cluster."""
