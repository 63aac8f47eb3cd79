"""verl: the weight sync of its SGLang rollout, of its vLLM rollout, and of its checkpoint engines."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from bucketproof.reference.released.loading import excerpt, member_of, whole
from bucketproof.reference.released.registry import Bucketer, Said, Sender, adapter
from bucketproof.reference.released.wheels import Unavailable, Wheel
from bucketproof.reference.released.wire import THROUGH_A_BUFFER, Wire, serve

_BUCKETER = "verl/workers/rollout/sglang_rollout/utils.py"
_HELPER = "verl/workers/rollout/utils.py"
_KIMI = "verl/checkpoint_engine/kimi_checkpoint_engine.py"
_CHUNKS = "verl/checkpoint_engine/base.py"
_SENDER = "verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
_RELEASES = {
    "0.7.0": "676d40f12214df482ec2d2298dc1e8590966ce75a1ab8a5e5afaf26d31cb58fd",
    "0.7.1": "0f7fb1dd6a37d20f7d8795c65ed0d1b9797ffb9947f283bbefd758dced08e216",
    "0.8.0": "4e32830aae80771ee3b5f0d26a2b794d793f3bcece67aff07c2a7c62e948714f",
    "0.9.0": "6e9374db1e2ab346a0aafe9a202bee1b239a042def2f2ccd6db2a4cd04c6308b",
    "0.9.1": "db6e6f2a8d9d5808d9ec32d357a42319fdc6967df688ff9d9810050f49bfdd14",
}


def _since(*versions: str) -> dict[str, str]:
    return {version: _RELEASES[version] for version in versions}


@adapter(
    "verl",
    source=_BUCKETER,
    releases=_RELEASES,
    history="0.7.0 keeps the tensors that it is given; 0.7.1 and 0.8.0 are asynchronous, and clone every tensor; 0.9.0 "
    "and 0.9.1 clone only what has a `_base`; 0.9.1 can keep groups of names together, through an argument that is "
    "left at its default here, no groups, and has come to hold on to a flushed bucket while it collects the next one",
    why="verl hands its weights to the SGLang rollout engine in the buckets that this function yields",
    before={
        "0.7.1": {
            "scope": Said(
                ("ownership", "values", "boundaries", "memory", "lifecycle"), "it groups, and says nothing of aliasing"
            ),
            "retention": Said("producer-owns", "the engines that lend out a receive buffer came with 0.7.1"),
            "layout": Said(None, "tensors are passed on as they are"),
        }
    },
)
def get_named_tensor_buckets(wheel: Wheel) -> Bucketer:
    supplies: dict[str, dict[str, object]] = {"verl.utils.device": {"get_device_name": _no_device_name}}
    if "ensure_async_iterator" in wheel.read(_BUCKETER):  # 0.7.0 is not asynchronous
        supplies["verl.workers.rollout.utils"] = {"ensure_async_iterator": _ensure_async_iterator(wheel)}
    bucketer: Bucketer = member_of(whole(wheel, _BUCKETER, supplies), "get_named_tensor_buckets")
    return bucketer


def _ensure_async_iterator(wheel: Wheel) -> Any:
    # its own file imports web servers and Ray, hence not the whole of it
    return excerpt(wheel, _HELPER, ["ensure_async_iterator"]).ensure_async_iterator


def _no_device_name() -> NoReturn:
    # only the file's broadcast helper asks; a made-up answer could bend a later release's bucketer unseen
    raise Unavailable("this release's bucketer asks for verl's get_device_name, which is not supplied")


@adapter(
    "verl",
    which="kimi",
    source=_KIMI,
    releases=_since("0.9.1"),
    history="since 0.7.1, the first to have it, the function has not changed",
    why="verl's engine on checkpoint-engine moves its weights to the CPU in the buckets that this function yields",
    promises={
        "retention": Said("producer-owns", "its caller, send_weights, copies each bucket to the CPU at once"),
        "scope": Said(
            ("values", "boundaries", "memory", "lifecycle"),
            "it casts and groups; whose memory a tensor is in is nothing it or its caller speaks of",
        ),
        "dtype": Said("bfloat16", "everything is cast to rollout_dtype, by default bfloat16"),
        "copies": Said(None, "a tensor that has the dtype already is passed on, any other is copied"),
        "duplicates": Said(None, "a bucket is a dict by name, and a model has no name twice"),
        "layout": Said(None, "nothing is said of strides"),
    },
)
def ckpt_get_named_tensor_buckets(wheel: Wheel) -> Bucketer:
    named = excerpt(wheel, _KIMI, ["ckpt_get_named_tensor_buckets"], Generator=Generator, torch=torch)

    def bucketer(weights: Any, bucket_bytes: Any) -> Any:
        return named.ckpt_get_named_tensor_buckets(weights, bucket_bytes, world_size=1, rank_id=0)

    return bucketer


@adapter(
    "verl",
    which="chunks",
    source=_CHUNKS,
    releases=_since("0.9.1"),
    history="since 0.8.0, the first to have them, nothing has changed in what is judged here; 0.9.1 has added that "
    "metadata can be had alone",
    why="verl's NCCL, HCCL and NIXL engines cut weights into chunks of a bucket's size, and put them together again",
    promises={
        "scope": Said(("values", "lifecycle"), "buckets are filled by methods of the engines, which need devices"),
        "retention": Said("producer-owns", "the engines copy each chunk before they ask for the next one"),
        "copies": Said("always", "the engines copy each chunk into a buffer"),
        "lookahead": Said(None, "the engines decide how many chunks they ask for"),
        "bad_limit": Said(None, "nothing is said of such sizes"),
    },
)
def split_and_merge_weight_chunks(wheel: Wheel) -> Bucketer:
    names = ["TensorMeta", "split_weight_chunks", "merge_weight_chunks"]
    scope = {"dataclass": dataclass, "Generator": Generator, "AsyncGenerator": AsyncGenerator, "torch": torch}
    module = excerpt(wheel, _CHUNKS, names, **scope, ensure_async_iterator=_ensure_async_iterator(wheel))

    async def bucketer(weights: Any, bucket_bytes: Any) -> AsyncIterator[Any]:
        size = int(bucket_bytes)
        chunks = module.split_weight_chunks(weights, size)
        try:
            async for pair in module.merge_weight_chunks(_sent(chunks), size):
                yield [pair]
        finally:
            await chunks.aclose()

    return bucketer


async def _sent(chunks: Any) -> AsyncIterator[Any]:
    """What a transport does to chunks: at the other end each has memory of its own."""
    async for meta, chunk in chunks:
        yield meta, chunk.clone()


@adapter(
    "verl",
    which="sender",
    source=_SENDER,
    releases=_since("0.8.0", "0.9.0", "0.9.1"),
    history="0.7.1, the first to have it, is not judged: it acknowledges a bucket before that is loaded, relying on a "
    "copy to the device, which on a CPU is none; 0.8.0 copies a flat view of a weight's bytes; 0.9.0 copies a weight "
    "into a view of the buffer, of its dtype and shape, as its receiver reads it; 0.9.1 aligns that view to the dtype",
    why="verl sends its weights to the vLLM rollout's process through this sender and receiver",
    promises={
        **THROUGH_A_BUFFER,
        "bound": Said(None, "a bucket is what fits the buffer, since 0.9.1 with gaps that align it"),
        "oversize": Said("error", "through shared memory, a weight larger than the buffer is an AssertionError"),
        "bad_limit": Said(None, "a size in MiB; nothing is said of those that are none"),
        "layout": Said("contiguous", "the receiver views its buffer in the weight's shape"),
    },
)
def bucketed_weight_sender(wheel: Wheel) -> Sender:
    supplies: dict[str, dict[str, object]] = {
        "verl.utils.device": _CPU,
        "verl.workers.rollout.utils": {"ensure_async_iterator": _ensure_async_iterator(wheel)},
    }
    module = whole(wheel, _SENDER, supplies)

    async def send(weights: Any, bucket_bytes: Any, deliver: Any) -> None:
        with Wire() as wire:
            sender = module.BucketedWeightSender(wire.address, use_shm=True)
            receiver = module.BucketedWeightReceiver(wire.address, torch.device("cpu"), use_shm=True)
            sender.bucket_size = wire.size(bucket_bytes)  # it is asked for in MiB, and used in bytes
            sender.zmq_context = receiver.zmq_context = wire.context

            def load(received: Any, *_: bool) -> None:
                # as an engine has copied the weights before it returns; the last message may be the end alone
                if received:
                    deliver([(name, tensor.clone()) for name, tensor in received])

            await serve(wire, lambda: receiver.receive_weights(load), lambda: sender.async_send_weights(weights))

    return Sender(send)


def _nothing(*_: Any) -> None: ...


# What verl's own module makes of a GPU, for a machine that has none.
_CPU: dict[str, object] = {
    "get_device_id": lambda: 0,
    "get_device_name": lambda: "cpu",
    "get_torch_device": lambda: SimpleNamespace(synchronize=_nothing, empty_cache=_nothing, ipc_collect=_nothing),
    "is_support_ipc": lambda: False,
}
