"""How cheaply can a demand be covered by machines: a proven lower bound, and patterns that come close to it."""
