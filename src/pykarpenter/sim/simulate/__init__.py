"""A day in seconds: a scenario or a snapshot runs in the embedded cluster and is measured."""
