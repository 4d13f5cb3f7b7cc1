"""What an export met, the same for both transports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """The answer to one empty export.

    Args:
        kind: ``status``: the receiver, or whoever stands in its place, answered by one. ``timeout``: nothing came in
            time. ``fault``: the transport failed, or the exporter did.
        status: The HTTP status or the name of the gRPC one; that of a fault when it may have been the receiver's.
        detail: What the library said.
        milliseconds: How long it took.
        tls: Whether TLS was spoken.
        location: Where an HTTP answer redirects to.
        foreign: What an HTTP answer held that no OTLP receiver sends, as ``a web page``; empty when it may be one's.
    """

    kind: str
    status: str = ""
    detail: str = ""
    milliseconds: float = 0.0
    tls: bool = False
    location: str = ""
    foreign: str = ""

    @property
    def arrived(self) -> bool:
        """Whether the receiver took the export."""
        return self.kind == "status" and not self.foreign and (self.status == "OK" or self.status[:1] == "2")


class Answered(BaseException):
    """Ends an export with its first answer.

    No ``Exception``, so that it gets through the exporter: no second attempt, no waiting before one.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
