"""A rank: it joins a process group, and then does what it is sent until it is sent nothing more."""

from __future__ import annotations

import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import current_process
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from bucketproof.properties.ranks.meeting import open_circle

_HERE = "127.0.0.1"


def main(descriptor: int) -> None:
    """Answer whoever has the other end of this pipe."""
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    warnings.simplefilter("ignore")  # that interfaces will go away is no news to those whose weights come through them
    with Connection(descriptor) as pipe:
        path, key, number, size, seconds = pipe.recv()
        sys.path[:], current_process().authkey = path, key
        pipe.send(_done(_join, (pipe, number, size, timedelta(seconds=seconds))))
        while (work := pipe.recv()) is not None:
            pipe.send(_done(*work))
            del work
    os._exit(0)  # nothing is to be kept, and to end in good order takes seconds


def _end_with_the_parent() -> None:
    """Nobody writes here, so this returns when the parent is gone, however it went and whatever is done here."""
    os.read(0, 1)  # not through a buffer, whose lock would be held while the interpreter ends
    os._exit(1)


def _join(pipe: Connection, number: int, size: int, patience: timedelta) -> None:
    if names := [name for _, name in socket.if_nameindex() if name.startswith("lo")]:
        # Else gloo asks what address the machine's name has, which may be none.
        os.environ["GLOO_SOCKET_IFNAME"] = names[0]
    if number == 0:
        store = TCPStore(_HERE, 0, size, is_master=True, wait_for_workers=False, timeout=patience)
        pipe.send((True, store.port))
    else:
        store = TCPStore(_HERE, pipe.recv(), size, is_master=False, timeout=patience)
    dist.init_process_group("gloo", store=store, rank=number, world_size=size, timeout=patience)
    open_circle(patience)


def _done(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Whether it could be done, and what came of it: a value, or what went wrong, in a line."""
    try:
        return True, function(*arguments)
    except Exception as error:
        return False, " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    main(int(sys.argv[1]))
