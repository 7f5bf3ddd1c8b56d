"""The commit in logs and metrics: of the build, of the checkout, or honestly none."""

import json

from pykarpenter.runtime import logs
from pykarpenter.runtime.commit import head_of, shortened

HASH = "0123456789abcdef0123456789abcdef01234567"


def test_the_head_of_a_checkout_is_found_wherever_git_keeps_it(tmp_path):
    """Loose and packed branches, a detached HEAD, and a second working tree of the same repository."""
    git = tmp_path / "main" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{HASH} refs/heads/main\n")
    assert head_of(git) == HASH
    (git / "refs" / "heads" / "main").write_text(f"{HASH[::-1]}\n")
    assert head_of(git).strip() == HASH[::-1]
    second = git / "worktrees" / "second"
    second.mkdir(parents=True)
    (second / "HEAD").write_text("ref: refs/heads/main\n")
    (second / "commondir").write_text("../..\n")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / ".git").write_text(f"gitdir: {second}\n")
    assert head_of(tmp_path / "second" / ".git").strip() == HASH[::-1]
    (second / "HEAD").write_text(f"{HASH}\n")
    assert head_of(tmp_path / "second" / ".git") == HASH


def test_what_is_no_checkout_has_no_commit(tmp_path):
    """An unpacked archive or a broken folder is no reason to fail, and no reason to invent something."""
    assert head_of(tmp_path / ".git") == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert head_of(tmp_path / ".git") == ""
    assert shortened("not a hash") == ""
    assert shortened(f" {HASH.upper()}\n") == "0123456"


def test_lines_leave_an_unknown_commit_out():
    """`unknown` would look like a value; an absent key says what is the case."""
    lines = []
    logs.configure(commit="", write=lines.append)
    try:
        logs.get_logger().info("hello")
    finally:
        logs.silence()
    assert "commit" not in json.loads(lines[0])
