"""The embedded cluster's cloud: machines apart from Nodes, a market with prices and shortages, and its failures."""
