"""The only door to an API server: contract, HTTP client, reflector, patches, leases."""
