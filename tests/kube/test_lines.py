"""Cutting streams into lines."""

import itertools
import random

from pykarpenter.kube.lines import LineSplitter


def lines_of(chunks):
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)]


def test_lines_are_the_same_however_the_stream_is_cut():
    """Chunks end inside lines, at newlines, between them; nothing may be lost or glued."""
    text = b"first\nsecond line\n\nthird\n" + b"x" * 500 + b"\nlast\nunfinished"
    expected = [b"first", b"second line", b"third", b"x" * 500, b"last"]
    rng = random.Random(1)
    for _ in range(300):
        cuts = sorted(rng.sample(range(len(text)), rng.randrange(12)))
        edges = [0, *cuts, len(text)]
        assert lines_of(text[a:b] for a, b in itertools.pairwise(edges)) == expected
    assert lines_of(bytes([byte]) for byte in text) == expected
