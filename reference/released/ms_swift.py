"""ms-swift: three ways to its rollout engine, in buckets, flattened, and through a socket."""

from collections.abc import Callable
from contextvars import ContextVar
from multiprocessing.shared_memory import SharedMemory
from types import SimpleNamespace
from typing import Any

import torch

from bucketproof.reference.released.loading import excerpt, needed, whole
from bucketproof.reference.released.registry import Bucketer, Packer, Said, Sender, adapter
from bucketproof.reference.released.sglang import flattened
from bucketproof.reference.released.wheels import Wheel
from bucketproof.reference.released.wire import THROUGH_A_BUFFER, Wire, serve

_UTILS = "swift/rlhf_trainers/utils.py"
_SENDER = "swift/ray/megatron/rollout/weight_transfer.py"
_NEWEST = {"4.6.0": "8888ca2b88681aeabffc981f289ffc3e4fa6e4da7f83e885114ec0edbe8d99ea"}
_MIB = 1 << 20


@adapter(
    "ms-swift",
    source=_UTILS,
    releases=_NEWEST,
    history="since 3.10.0, the first to have it, the function has not changed",
    why="ms-swift's trainers sync the buckets of parameters that this function lists",
    promises={
        "scope": Said(("values", "boundaries", "memory", "lifecycle"), "it groups, and says nothing of memory"),
        "retention": Said("producer-owns", "it lists named parameters before any is used"),
        "copies": Said(None, "it groups, and says nothing of memory"),
        "layout": Said(None, "tensors are passed on as they are"),
        "lookahead": Said(None, "it returns a list"),
        "bad_limit": Said(None, "a size in MiB; nothing is said of those that are none"),
    },
)
def create_parameter_buckets(wheel: Wheel) -> Bucketer:
    listed = excerpt(wheel, _UTILS, ["_create_parameter_buckets"])._create_parameter_buckets

    def bucketer(weights: Any, bucket_bytes: Any) -> Any:
        return listed(weights, bucket_bytes / _MIB)

    return bucketer


@adapter(
    "ms-swift",
    which="flattened",
    source=_UTILS,
    releases={"4.1.3": "b4c99b37be8d43339ef274db0b07f37078e15f73f350a534c15d67bc1057bfeb", **_NEWEST},
    history="up to 4.1.3, since 3.10.0, all of a bucket is copied into the dtype of its first weight; since 4.2.0 it "
    "is put together as bytes",
    why="ms-swift's trainers flatten a bucket with this class, a copy of SGLang's, and its server reconstructs it",
    promises={
        "duplicates": Said(None, "what is reconstructed is a dict by name, and a model has no name twice"),
    },
)
def flattened_tensor_bucket(wheel: Wheel) -> Packer:
    pydantic = needed("pydantic")
    scope = {"BaseModel": pydantic.BaseModel, "field_validator": pydantic.field_validator}
    scope |= {"torch": torch, "Any": Any, "Dict": dict, "List": list, "Tuple": tuple}
    names = ["FlattenedTensorMetadata", "FlattenedTensorBucket"]
    return flattened(excerpt(wheel, _UTILS, names, **scope).FlattenedTensorBucket)


@adapter(
    "ms-swift",
    which="sender",
    source=_SENDER,
    releases=_NEWEST,
    history="since 4.3.0, the first to have it, the file has not changed",
    why="ms-swift's Megatron workers send their weights to vLLM's process through this sender",
    promises={
        **THROUGH_A_BUFFER,
        "oversize": Said("error", "a weight larger than the buffer is a RuntimeError"),
        "bad_limit": Said(None, "a size in MiB; nothing is said of those that are none"),
    },
)
def bucketed_weight_sender(wheel: Wheel) -> Sender:
    current: ContextVar[Any] = ContextVar("current")
    module = whole(wheel, _SENDER, {**_SWIFT, "zmq": _zmq(current.get)})

    async def send(weights: Any, bucket_bytes: Any, deliver: Any) -> None:
        with Wire() as wire:
            sender = module.BucketedWeightSender(wire.address, use_shm=True)
            sender.bucket_size = wire.size(bucket_bytes)  # it is asked for in MiB, and used in bytes

            async def sending() -> None:
                async with sender:
                    await sender.handshake()
                    await (sender.send_weights_async if hasattr(weights, "__aiter__") else sender.send_weights)(weights)

            current.set(wire.context)
            await serve(wire, lambda: _receive(wire, deliver), sending)

    return Sender(send)


def _receive(wire: Wire, deliver: Any) -> None:
    """The other end of the sender's protocol, which lives in vLLM's worker and is written anew.

    It copies bytes, and so leaves open how they are aligned.
    """
    with wire.receiver() as (recv, acknowledge):
        memory = SharedMemory(name=recv()["name"])
        try:
            acknowledge()
            is_last = False
            while not is_last:
                message = recv()
                if received := [_copied(memory, each) for each in message["bucket_meta"].values()]:
                    deliver(received)  # the last message may be the end alone
                acknowledge()
                is_last = message["is_last"]
        finally:
            memory.close()


def _copied(memory: SharedMemory, meta: Any) -> tuple[str, torch.Tensor]:
    tensor = torch.empty(meta["shape"], dtype=meta["dtype"])
    if tensor.nbytes:
        sent = torch.frombuffer(memory.buf, dtype=torch.uint8, count=tensor.nbytes, offset=meta["offset"])
        tensor.view(-1).view(torch.uint8).copy_(sent)
    return meta["name"], tensor


def _zmq(instance: Callable[[], Any]) -> dict[str, object]:
    """ZeroMQ, whose context of the process is another one for each sync, which can be ended with it."""
    zmq = needed("zmq")
    return {**vars(zmq), "Context": SimpleNamespace(instance=instance)}


class _Silent:
    def debug(self, *_: Any) -> None: ...


def _nothing() -> None: ...


_SWIFT: dict[str, dict[str, object]] = {
    "swift.utils": {
        "get_current_device": lambda: "cpu",
        "synchronize": _nothing,
        "gc_collect": _nothing,
        "ipc_collect": _nothing,
    },
    "swift.utils.logger": {"get_logger": _Silent},
}
