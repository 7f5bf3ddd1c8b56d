"""What the client leaves behind when it is closed: nothing, whatever the server does."""

import asyncio
import gc
import socket
import threading
import warnings
from contextlib import contextmanager

from pykarpenter.api.kinds import POD
from pykarpenter.kube.client import HttpApi
from pykarpenter.kube.config import ClusterConfig
from pykarpenter.runtime.clock import SystemClock
from pykarpenter.sim.server.certificates import make_certificates

EVENT = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}\n'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"


@contextmanager
def deaf_server(folder):
    """A TLS server that starts a watch and then reads nothing any more, not even a goodbye; its config for clients."""
    certificates = make_certificates()
    context = certificates.server_context(folder)
    listener = socket.create_server(("127.0.0.1", 0))
    open_connections, stop = [], threading.Event()

    def serve():
        while True:
            connection, _ = listener.accept()
            if stop.is_set():
                connection.close()
                return
            secure = context.wrap_socket(connection, server_side=True)
            secure.recv(65536)
            secure.sendall(ANSWER % (len(EVENT), EVENT))
            open_connections.append(secure)

    thread = threading.Thread(target=serve)
    thread.start()
    host, port = listener.getsockname()
    try:
        yield ClusterConfig(server=f"https://{host}:{port}", ca=certificates.authority.decode())
    finally:
        stop.set()
        socket.create_connection((host, port)).close()
        thread.join()
        for connection in open_connections:
            connection.close()
        listener.close()


def test_a_watch_that_is_given_up_holds_no_socket_after_the_client_is_closed(tmp_path):
    """A TLS goodbye waits for the other side; a loop that ends before would leak the connection."""

    async def main(config):
        async with HttpApi(config, clock=SystemClock()) as api:
            watches = [api.watch(POD) for _ in range(3)]
            versions = [(await anext(watch)).resource_version for watch in watches]
            for watch in watches:
                await watch.aclose()
        return versions

    with deaf_server(tmp_path) as config:
        gc.collect()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ResourceWarning)
            assert asyncio.run(main(config)) == ["7", "7", "7"]
            gc.collect()
    assert [str(warning.message) for warning in found] == []
