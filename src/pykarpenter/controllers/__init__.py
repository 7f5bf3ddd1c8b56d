"""One module or folder per loop: read, decide, apply."""
