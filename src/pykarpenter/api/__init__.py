"""Wire types, quantities, durations, label keys, defaults, validation, hashes and CRD manifests."""
