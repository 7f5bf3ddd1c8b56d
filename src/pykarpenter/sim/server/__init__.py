"""The embedded cluster served over TLS on loopback."""
