"""The oracle: packing as the specification tells it, pod by pod, slow and obvious.

Nothing here is fast and nothing is cached. Every fast plan is compared with what this says.
"""
