"""Credential commands and kubeconfigs: every way a cluster says who we are."""

import asyncio
import stat
import sys

import pytest

from pykarpenter.kube.credentials import CredentialError, ExecCommand, ExecSpec
from pykarpenter.runtime.clock import SystemClock

# The first token is good for an hour, the later ones for a day.
COUNTING = """
count = pathlib.Path(os.environ["COUNTER"])
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["spec"]["interactive"] is False
until = "2026-01-01T01:00:00Z" if number < 2 else "2026-01-02T01:00:00Z"
status = {"token": f"token-{number}", "expirationTimestamp": until}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


class At:
    """A clock that stands where it is put."""

    wall = 1_767_225_600.0

    def now(self):
        return self.wall

    def monotonic(self):
        return 0.0


def plugin(folder, body):
    script = folder / "get-token"
    script.write_text(f"#!{sys.executable}\nimport json, os, pathlib\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_exec_credentials_are_kept_until_they_expire_or_are_refused(tmp_path):
    """Cloud log-ins are commands with short-lived tokens; one run per request would be far too many."""
    script = plugin(tmp_path, COUNTING)
    spec = ExecSpec(command=f"./{script.name}", env=[{"name": "COUNTER", "value": str(tmp_path / "count")}])

    async def main():
        clock = At()
        credentials = ExecCommand(spec, clock, folder=tmp_path)
        first = await credentials.current()
        assert (await asyncio.gather(*(credentials.current() for _ in range(5)))) == [first] * 5
        assert first.token == "token-1"
        clock.wall += 3600 - 59
        second = await credentials.current()
        assert second.token == "token-2"
        credentials.refused(first)
        assert await credentials.current() is second
        credentials.refused(second)
        assert (await credentials.current()).token == "token-3"
        assert "token-" not in repr(second)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise SystemExit(3)", "exited with 3"),
        ("print('secret-token')", "printed no ExecCredential"),
        ("print('{}')", "neither a token nor a certificate"),
        ("import time; time.sleep(60)", "did not answer within 0.5 s"),
    ],
)
def test_a_failing_credential_command_is_named_with_its_hint_and_without_its_output(tmp_path, body, problem):
    """What it printed may be half a secret; what to install is what the user needs."""
    spec = ExecSpec(command=str(plugin(tmp_path, body)), install_hint="install the cloud tool")

    async def main():
        with pytest.raises(CredentialError) as caught:
            timeout = 0.5 if "sleep" in body else 30
            await ExecCommand(spec, SystemClock(), folder=tmp_path, timeout_s=timeout).current()
        assert problem in str(caught.value)
        assert "install the cloud tool" in str(caught.value)
        assert "secret-token" not in str(caught.value)

    asyncio.run(main())


def test_a_missing_credential_command_is_named(tmp_path):
    """The usual case: a kubeconfig copied to a machine without the cloud's tool."""
    spec = ExecSpec(command="no-such-cloud-tool", install_hint="see the cloud's manual")

    async def main():
        with pytest.raises(CredentialError, match=r"no-such-cloud-tool.*did not start.*see the cloud's manual"):
            await ExecCommand(spec, SystemClock(), folder=tmp_path).current()

    asyncio.run(main())
