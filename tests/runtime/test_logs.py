"""Log lines as Karpenter writes them, without secrets and without floods."""

import json
import sys

import pytest

from pykarpenter.kube.errors import NotFound
from pykarpenter.runtime import logs
from pykarpenter.runtime.redaction import redact, redact_text


class At:
    wall = 1_767_225_600.6789
    tick = 0.0

    def now(self):
        return self.wall

    def monotonic(self):
        return self.tick


@pytest.fixture
def clock():
    return At()


@pytest.fixture
def written(clock):
    lines = []
    logs.configure("info", clock=clock, commit="abc123", write=lines.append)
    yield lines
    logs.silence()


@pytest.mark.promise("API-7.23")
def test_a_line_is_one_json_object_with_karpenters_keys(written):
    """Log pipelines parse these keys."""
    logs.get_logger(controller="provisioner").info("found provisionable pod(s)", pods=3, NodePool="general")
    (line,) = written
    assert line.endswith("\n") and line.count("\n") == 1
    assert list(json.loads(line).items()) == [
        ("level", "INFO"),
        ("time", "2026-01-01T00:00:00.678Z"),
        ("logger", "controller"),
        ("message", "found provisionable pod(s)"),
        ("commit", "abc123"),
        ("controller", "provisioner"),
        ("pods", 3),
        ("NodePool", "general"),
    ]


@pytest.mark.promise("API-7.23")
def test_levels_filter_and_only_debug_names_the_caller(clock):
    """`caller` costs time, so it comes with debug alone."""
    for level, expected in (("debug", 3), ("info", 2), ("error", 1)):
        lines = []
        logs.configure(level, clock=clock, write=lines.append)
        log = logs.get_logger()
        log.debug("d")
        log.info("i")
        log.error("e")
        assert len(lines) == expected
        assert all(("caller" in json.loads(line)) == (level == "debug") for line in lines)
        if level == "debug":
            assert json.loads(lines[0])["caller"].startswith("runtime/test_logs.py:")
    logs.silence()


@pytest.mark.promise("API-7.24")
def test_repeats_are_sampled_per_second_and_message(written, clock):
    """The first hundred, then one in a hundred; another second or message starts anew."""
    log = logs.get_logger()
    for n in range(1000):
        log.info("flood", n=n)
    assert len(written) == 100 + 9
    log.info("other")
    log.error("flood")
    assert len(written) == 111
    clock.tick = 1.0
    log.info("flood")
    assert len(written) == 112


@pytest.mark.promise("API-7.23")
def test_errors_are_flattened_into_keys_without_stack_traces(written):
    """Traces are for debuggers; the facts of an error are for searches."""
    try:
        raise NotFound("nodeclaims general-x not found")
    except NotFound as error:
        logs.get_logger().error("reconcile failed", error=error)
    line = json.loads(written[0])
    assert (line["error"], line["error-kind"], line["error-code"]) == (
        "nodeclaims general-x not found",
        "NotFound",
        404,
    )
    assert "Traceback" not in written[0]


def test_s14_secrets_never_reach_a_line(written):
    """Whatever a caller passes: by the name of the field, by the look of the value, nested or in an error."""
    secrets = {
        "token": "sekret-1",
        "clientKeyData": "sekret-2",
        "headers": {"Authorization": "Bearer sekret-3-abcdefgh"},
        "text": "asked with Bearer sekret4abcdefgh and postgres://user:sekret5@db/x",
        "nested": [{"password": "sekret-6"}],
        "userData": "#!/bin/sh sekret-7",
        "key": "-----BEGIN EC PRIVATE KEY-----\nsekret8\n-----END EC PRIVATE KEY-----",
        "jwt": "eyJhbGciOiJSUzI1NiJ9.eyJzZWtyZXQ5Ijoic2VrcmV0In0.sekret9",
        "error": ValueError("Authorization: Bearer sekret10abcdef"),
    }
    logs.get_logger().error("leak Bearer sekret11abcdefgh", **secrets)
    assert "sekret" not in written[0]
    line = json.loads(written[0])
    assert line["userData"].startswith("sha256:")


def test_redaction_leaves_ordinary_facts_alone():
    """Over-eager hiding would make logs useless."""
    assert redact("secretName", "tls") == "tls"
    assert redact("pods", {"a/b": 3}) == {"a/b": 3}
    assert redact("tokens", 5) == 5
    assert redact_text("provider-id kwok://general-abc") == "provider-id kwok://general-abc"
    assert redact_text("https://api.example:6443/x") == "https://api.example:6443/x"


def test_output_paths_are_streams_and_files(tmp_path, clock, capsys):
    """`stdout` and a file at once, as LOG_OUTPUT_PATHS allows; a broken sink is told on the error paths."""
    target = tmp_path / "log"
    logs.configure("info", clock=clock, output_paths=f"stdout,{target}")
    logs.get_logger().info("hello")
    assert json.loads(capsys.readouterr().out)["message"] == "hello"
    assert json.loads(target.read_text())["message"] == "hello"
    logs.configure("info", clock=clock, output_paths="/dev/full")
    logs.get_logger().info("lost")
    assert "write error" in capsys.readouterr().err
    logs.silence()


def test_nothing_is_written_before_logging_is_configured(capsys):
    """Libraries and tests stay quiet."""
    logs.silence()
    logs.get_logger().error("nobody asked")
    assert capsys.readouterr() == ("", "")
    assert sys.stdout is not None
