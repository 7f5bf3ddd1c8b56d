"""Objects sent as protobuf."""

import pytest

from pykarpenter.kube.errors import BadRequest
from pykarpenter.sim.server.protobuf import MAGIC, decode

from .conftest import Served


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return MAGIC + field(1, type_meta) + field(2, message)


DEPLOYMENT = envelope(
    "apps/v1",
    "Deployment",
    field(1, field(1, b"web") + field(2, b"") + field(8, field(1, 0)))
    + field(
        2,
        field(1, 3)
        + field(2, field(1, field(1, b"app") + field(2, b"web")))
        + field(
            3,
            field(1, field(11, field(1, b"app") + field(2, b"web")))
            + field(
                2,
                field(2, field(1, b"main") + field(2, b"web:1"))
                + field(1, field(1, b"data") + field(2, field(2, b""))),
            ),
        )
        + field(4, b""),
    ),
)


def test_messages_become_the_json_they_mean() -> None:
    """Members, maps, lists, inlined sources; what Go writes out empty is left away."""
    obj = decode(DEPLOYMENT)
    assert obj["metadata"] == {"name": "web"}
    assert (obj["spec"]["replicas"], obj["spec"]["selector"]) == (3, {"matchLabels": {"app": "web"}})
    spec = obj["spec"]["template"]["spec"]
    assert spec["containers"] == [{"name": "main", "image": "web:1"}]
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}]


@pytest.mark.parametrize("body", [b"", b"k8s", MAGIC, MAGIC + b"\xff", DEPLOYMENT[:-9], envelope("v9", "Odd", b"")])
def test_unreadable_bodies_are_refused(body: bytes) -> None:
    """Any bytes get an answer that says what to do."""
    with pytest.raises(BadRequest, match="not readable as protobuf"):
        decode(body)


async def test_the_server_takes_protobuf(served: Served) -> None:
    """kubectl create deployment."""
    url = f"{served.url}/apis/apps/v1/namespaces/default/deployments"
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with served.session.post(url, data=DEPLOYMENT, headers=headers) as response:
        assert response.status == 201, await response.text()
    assert served.world.get("deployments", "web")["spec"]["strategy"]["type"] == "RollingUpdate"
