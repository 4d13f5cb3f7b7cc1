"""A relay of TCP on loopback that counts what goes through it, towards a server that may come later."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Relay:
    """Pass connections on to a port of loopback; ``sent`` is what clients have sent through it, in bytes."""

    def __init__(self, target: int) -> None:
        self.sent = 0
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no further connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with source, sink, contextlib.suppress(OSError):  # either side may go away
            while data := source.recv(65536):
                self.sent += len(data) if counted else 0
                sink.sendall(data)


@contextmanager
def running_relay(target: int) -> Iterator[Relay]:
    """Run a relay to a port of loopback for the length of a ``with`` block."""
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
