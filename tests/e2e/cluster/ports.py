"""Free loopback ports.

They are taken below the range from which the kernel hands out source ports, because a server that is
restarted must get its port back, and an outgoing connection must not have taken it meanwhile.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 20000, 32000


def free_ports(count: int) -> list[int]:
    """`count` different ports on 127.0.0.1 that nobody listens on now.

    The choice is random, and not from the seed that the test run fixes: two workers with the same seed
    must not pick the same ports.
    """
    chooser = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = chooser.randrange(_FIRST, _LAST)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
