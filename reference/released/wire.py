"""What stands between a sender and its receiver: a socket and a size, for one sync."""

import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from bucketproof.reference.released.loading import needed
from bucketproof.reference.released.registry import Said

THROUGH_A_BUFFER = {
    "scope": Said(
        ("values", "boundaries", "lifecycle"),
        "its buffer, its socket and the receiver's process are memory that is not seen from here",
    ),
    "copies": Said("always", "each weight is copied into the buffer that sender and receiver share"),
    "lookahead": Said(None, "the sender gives nothing back before it has sent everything"),
    "duplicates": Said(None, "a bucket's metadata is a dict by name, and a model has no name twice"),
}
"""What is promised by senders that fill a buffer which their receiver shares, and tell it by a socket what is there."""

_LARGEST = 1 << 26
"""Bytes of a buffer. A larger one holds no more of the streams that are judged, and would only be emptier."""


class Wire:
    """A ZeroMQ context and an address, which are there for one sync."""

    def __init__(self) -> None:
        zmq = needed("zmq")

        self.ended: type[Exception] = zmq.ContextTerminated
        self.context = zmq.Context()
        # Whoever connects may be first. To try again after 100 ms would be most of what a sync takes.
        self.context.setsockopt(zmq.RECONNECT_IVL, 1)
        self._folder = tempfile.mkdtemp(prefix="bucketproof-")
        self.address = f"ipc://{self._folder}/socket"

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.cut()
        shutil.rmtree(self._folder, ignore_errors=True)

    def cut(self) -> None:
        """End every wait on it, so that neither side waits for one that is gone."""
        self.context.term()

    @contextmanager
    def receiver(self) -> Iterator[tuple[Callable[[], Any], Callable[[], None]]]:
        """The other end: what waits for the next message, and what acknowledges it."""
        zmq = needed("zmq")

        with self.context.socket(zmq.REP) as socket:
            socket.connect(self.address)
            yield socket.recv_pyobj, lambda: socket.send(b"")

    @staticmethod
    def size(bucket_bytes: float) -> int:
        """The size of a buffer for buckets of so many bytes."""
        return int(min(bucket_bytes, _LARGEST))


async def serve(wire: Wire, receive: Callable[[], object], send: Callable[[], Awaitable[object]]) -> None:
    """Send, while a thread receives. Raises what the sender has raised or, if it was left alone, the receiver."""
    found: list[Exception] = []
    receiver = threading.Thread(target=_receive, args=(wire, receive, found), daemon=True)
    receiver.start()
    try:
        await send()
    except wire.ended:
        pass  # the receiver is gone, and has said why
    except BaseException:
        wire.cut()
        raise
    finally:
        receiver.join()
    if found:
        raise found[0]


def _receive(wire: Wire, receive: Callable[[], object], found: list[Exception]) -> None:
    try:
        receive()
    except wire.ended:
        pass  # the sender is gone
    except Exception as error:
        # memory that is still viewed cannot be closed, which hides what had gone wrong before
        hidden = error.__context__ if isinstance(error, BufferError) else None
        found.append(hidden if isinstance(hidden, Exception) else error)
        del error, hidden
        wire.cut()
