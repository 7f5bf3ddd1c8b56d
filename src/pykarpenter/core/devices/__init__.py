"""Dynamic resource allocation as pure decisions: pools of devices, what claims ask for, and the search between them."""
