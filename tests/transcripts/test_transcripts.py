"""The stories in this folder are told as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.story import run

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_transcript_is_as_written(path):
    """A change of behaviour must be seen by a reader; `python -m tests.transcripts --rewrite` accepts it."""
    written = path.read_text()
    assert run(written) == written


def test_there_are_stories():
    """An empty folder would hold nothing."""
    assert len(STORIES) >= 8
