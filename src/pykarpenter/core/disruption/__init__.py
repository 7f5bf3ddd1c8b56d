"""Which machines go away or are replaced, and why the others stay: unhealthy, empty, drifted, under-used."""
