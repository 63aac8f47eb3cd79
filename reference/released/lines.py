"""What goes wrong with a released bucketer, in one line of Python that needs torch and that package alone.

Such a line raises for as long as it goes wrong. There is one for what fits a line; for all the rest there is a script.
"""

from collections.abc import Mapping

_ODD = "[('a', torch.ones(1, dtype=torch.bfloat16)), ('b', torch.ones(1))]"
"""After two bytes, no float32 can be viewed."""
_ROWS = "[('a', torch.ones(2, 3).t())]"
_MISALIGNED = ("packing.alignment", "packing.round-trip", "values.conserved")

_FLATTENED = f"B({_ODD}).reconstruct_tensors()"
_PACKED = (
    f"c = p(iter({_ODD}), lambda item: item[1], 99); u(c.packed_tensor, c.names, c.shapes, c.dtypes, c.tensor_sizes)"
)
_RECORDED = "assert B([('a', torch.ones(1, requires_grad=True))]).get_flattened_tensor().grad_fn is None"
_LATE = "asyncio.new_event_loop().run_until_complete(f({}, 99).__anext__())"
_LOST = (
    "assert 'b' in [n for each in f([('a', torch.ones(1)), ('b', torch.ones(0))], 0, bucket_size=4, "
    "bucket_device='cpu') for n in each]"
)
# What a stream of one weight is delivered as, by what is asynchronous and by what is not.
_AWAITED = "[(_, t)] = " + _LATE.format("iter([('a', {})])")
_NEXT = "[(_, t)] = next(f(iter([('a', {})]), 99))"

_GRAPH = "b = torch.ones(1, requires_grad=True) * 1; {}; assert t.grad_fn is None"
_COPIED = "b = torch.ones(2); {}; assert t.data_ptr() == b.data_ptr()"
_ALIASED = {
    "aliasing.survives-overwrite": "b = torch.ones(1); {}; b.zero_(); assert t == 1",
    "aliasing.no-lent-memory": "b = torch.ones(1); {}; assert t.data_ptr() != b.data_ptr()",
}
_PINNED = "b = torch.ones(9)[:1]; {}; assert t.untyped_storage().nbytes() == t.nbytes"
_GATHERED = "b = torch.ones(2).view(2); {}; assert t.data_ptr() == b.data_ptr()"


def _kept(deliver: str) -> dict[str, str]:
    """Of what keeps a tensor that does not look like a view."""
    detached, itself = deliver.format("b.detach()"), deliver.format("b")
    return {
        **{name: line.format(detached) for name, line in _ALIASED.items()},
        "aliasing.no-pinned-storage": _PINNED.format(detached),
        "values.self-contained": _GRAPH.format(itself),
    }


_CLONED = {
    "ownership.no-copy": _COPIED.format(_AWAITED.format("b")),
    "values.self-contained": _GRAPH.format(_AWAITED.format("b")),
}
_GUARDED = {**_kept(_AWAITED), "ownership.no-copy": _GATHERED.format(_AWAITED.format("b"))}

_IMPORTS = {
    "sglang": "from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket as B",
    "ms-swift:flattened": "from swift.rlhf_trainers.utils import FlattenedTensorBucket as B",
    "lmdeploy": "from lmdeploy.utils import FlattenedTensorBucket as B",
    "vllm": "from vllm.distributed.weight_transfer.packed_tensor import pack_tensors as p, unpack_tensor as u",
    "rlinf": "from rlinf.hybrid_engines.weight_syncer.bucket_syncer import iter_named_tensor_buckets as f",
    "verl": "from verl.workers.rollout.sglang_rollout.utils import get_named_tensor_buckets as f",
    "verl:chunks": "from verl.checkpoint_engine.base import split_weight_chunks as f",
}
_LINES: Mapping[str, Mapping[str, str]] = {
    "sglang@0.5.23": dict.fromkeys(_MISALIGNED, _FLATTENED),
    "ms-swift@4.6.0:flattened": dict.fromkeys(_MISALIGNED, _FLATTENED),
    "vllm@0.33.0": dict.fromkeys(_MISALIGNED, _PACKED),
    "vllm@0.33.0:stream": {"values.conserved": _PACKED},
    "lmdeploy@0.18.0": {"values.self-contained": _RECORDED},
    "rlinf@0.3.0": {"values.conserved": _LOST, "values.tied": _LOST},
    "verl@0.7.0": _kept(_NEXT),
    "verl@0.7.1": _CLONED,
    "verl@0.8.0": _CLONED,
    "verl@0.9.0": _GUARDED,
    "verl@0.9.1": _GUARDED,
    "verl@0.9.1:chunks": {"values.conserved": _LATE.format(f"iter({_ROWS})")},
}


def lines(spec: str) -> dict[str, str]:
    """The line for each property of a target that there is one for."""
    project, _, rest = spec.partition("@")
    _, _, which = rest.partition(":")
    imported = _IMPORTS.get(f"{project}:{which}".removesuffix(":")) or _IMPORTS.get(project, "")
    return {name: _whole(imported, line) for name, line in _LINES.get(spec, {}).items()}


def _whole(imported: str, line: str) -> str:
    needed = "import asyncio, torch" if "asyncio" in line else "import torch"
    return f"{needed}; {imported}; {line}"
