"""Dashboard and metrics pages."""
