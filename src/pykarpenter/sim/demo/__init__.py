"""The demonstration: a story in the embedded cluster, told as it happens, and checked at its end."""
