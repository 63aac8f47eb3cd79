"""What goes wrong with a released bucketer, in one line of Python that needs torch and that package alone.

Such a line raises for as long as it goes wrong, and ends without a word where it does not.
"""

from collections.abc import Mapping

_ODD = "[('a', torch.ones(1, dtype=torch.bfloat16)), ('b', torch.ones(1))]"
"""After two bytes, no float32 can be viewed."""
_ROWS = "[('a', torch.ones(2, 3).t())]"
_TURNED = "[(n, torch.ones(2, 2).t()) for n in 'ab']"
"""Two items of 16 bytes that are copied to be flattened."""
_STRIDE = "[('a', torch.ones(2)[::2])]"
"""One element, and so contiguous, whatever its stride."""
_EMPTY = "iter([('a', torch.ones(0))])"

# What is put together with `cat` of parts that are copies, all of which are there at once with the result.
_TWICE = (
    "cat, seen = torch.cat, [0]; torch.cat = lambda t, dim=0: (seen.append(sum(x.nbytes for x in t)), cat(t, dim))[1]"
)
_IS_TWICE = "assert 2 * seen[-1] <= 32 + 16"

_FLATTENED = f"B({_ODD}).reconstruct_tensors()"
_RECORDED = "assert B([('a', torch.ones(1, requires_grad=True))]).get_flattened_tensor().grad_fn is None"
_ALIVE = "p = torch.nn.Parameter(torch.ones(1)); r = weakref.ref(p); {}; del p; assert r() is None"
_HELD = _ALIVE.format("t = B([('a', p)]).get_flattened_tensor()")
_SPREAD = f"{_TWICE}; B({_TURNED}); {_IS_TWICE}"
_BYTES = {
    **dict.fromkeys(("packing.alignment", "packing.round-trip", "values.conserved"), _FLATTENED),
    "memory.peak": _SPREAD,
}
_ELEMENTS = {"aliasing.no-pinned-storage": _HELD, "values.self-contained": _RECORDED, "memory.peak": _SPREAD}

_ROUNDED = "x = torch.tensor([1 + 2**-20]); y = B([{}, ('b', x)]).reconstruct_tensors()['b']; assert y == x".format(
    "('a', torch.ones(1, dtype=torch.bfloat16))"
)
_WIDENED = "[(n, torch.ones(1, dtype=torch.float64 if n == 'a' else torch.float32)) for n in 'abcd']"
_OF_THE_FIRST = {
    **dict.fromkeys(("packing.round-trip", "values.conserved"), _ROUNDED),
    "aliasing.no-pinned-storage": (
        f"assert B({_WIDENED}).reconstruct_tensors()['a'].untyped_storage().nbytes() <= 8 + 3 * 4"
    ),
    "packing.alignment": (
        f"b = B({_ODD}); assert b.get_metadata()[1].start_idx * b.get_flattened_tensor().itemsize % 4 == 0"
    ),
    "packing.metadata": f"assert B({_ODD}).get_flattened_tensor().nbytes == 2 + 4",
    "values.self-contained": _RECORDED,
    "memory.peak": f"assert B({_WIDENED}).get_flattened_tensor().nbytes <= (8 + 3 * 4) + 8",
}

_CHUNK = "c = p(iter({}), lambda item: item[1], 99)"
_PACKED = f"{_CHUNK.format(_ODD)}; u(c.packed_tensor, c.names, c.shapes, c.dtypes, c.tensor_sizes)"
_PEAK = f"{_TWICE}; {_CHUNK.format(_TURNED)}; {_IS_TWICE}"
_CHUNKED = {
    **dict.fromkeys(("packing.alignment", "packing.round-trip", "values.conserved"), _PACKED),
    "memory.peak": _PEAK,
}
_SCALAR = _CHUNK.format("[('a', torch.ones(()))]")

_PINNED_MEMORY = (
    f"f([], dict({_ROWS}), shared_pin_memory=[M(buffer=torch.empty(256, dtype=torch.uint8), size=256, metas=[])])"
)
_CONJUGATED = "f([torch.ones(1, dtype=torch.complex64).conj()], torch.empty(8, dtype=torch.uint8))"
_LOST = (
    "assert 'b' in [n for each in f([('a', torch.ones(1)), ('b', torch.ones(0))], 0, bucket_size=4, "
    "bucket_device='cpu') for n in each]"
)
# A sender, but for the socket and the buffer that it makes.
_RUN = "asyncio.new_event_loop().run_until_complete"
_BUFFER = "s.buffer, s.bucket_size = torch.empty(99, dtype=torch.uint8), 99"
_SOCKET = "s.socket = types.SimpleNamespace(send_pyobj=id, recv=dict)"
_SENT = f"s = S('ipc://x', use_shm=True); {_BUFFER}; {_SOCKET}; {_RUN}(s.send_weights({_STRIDE}))"
_UNMADE = "s._init_socket = s._init_buffer = s._cleanup = lambda: None"
_SENT_LATE = f"s = S('ipc://x', 1, True); {_UNMADE}; {_BUFFER}; {_SOCKET}; {_RUN}(s.async_send_weights(iter({{}})))"

_LATE = f"{_RUN}(f({{}}, 99).__anext__())"
# What a stream of one weight is delivered as.
_AWAITED = "[(_, t)] = " + _LATE.format("iter([('a', {})])")

_GRAPH = "b = torch.ones(1, requires_grad=True) * 1; {}; assert t.grad_fn is None"
_COPIED = "b = torch.ones(2); {}; assert t.data_ptr() == b.data_ptr()"
_ALIASED = {
    "aliasing.survives-overwrite": "b = torch.ones(1); {}; b.zero_(); assert t == 1",
    "aliasing.no-lent-memory": "b = torch.ones(1); {}; assert t.data_ptr() != b.data_ptr()",
}
_PINNED = "b = torch.ones(9)[:1]; {}; assert t.untyped_storage().nbytes() == t.nbytes"
_GATHERED = "b = torch.ones(2).view(2); {}; assert t.data_ptr() == b.data_ptr()"
# How many of the first bucket's two tensors, of 4 bytes each, are there when the fourth item is produced.
_STALE = (
    f"seen, refs, run = [], [], {_RUN}; g = f(((str(i), (seen.append(sum(r() is not None for r in refs)), "
    "torch.ones(9)[:1])[1]) for i in range(4)), 8); refs += [weakref.ref(t) for _, t in run(g.__anext__())]; "
    "run(g.__anext__()); assert not seen[3]"
)

# Three items, none of which had to be copied; one more than those that had to be may be there.
_NEEDLESS = (
    f"b = [(n, {{}}) for n in 'abc']; d = {_LATE.format('iter(b)')}; "
    "assert sum(x[1].data_ptr() != y[1].data_ptr() for x, y in zip(d, b)) <= 1"
)

_CLONED = {
    "aliasing.no-pinned-storage": _ALIVE.format(_AWAITED.format("p")),
    "ownership.no-copy": _COPIED.format(_AWAITED.format("b")),
    "values.self-contained": _GRAPH.format(_AWAITED.format("b")),
    "memory.peak": _NEEDLESS.format("torch.ones(1)"),
}
_GUARDED = {
    **{name: line.format(_AWAITED.format("b.detach()")) for name, line in _ALIASED.items()},
    "aliasing.no-pinned-storage": _PINNED.format(_AWAITED.format("b.detach()")),
    "ownership.no-copy": _GATHERED.format(_AWAITED.format("b")),
    "values.self-contained": _GRAPH.format(_AWAITED.format("b")),
    "memory.peak": _NEEDLESS.format("torch.ones(1).view(1)"),
}

_IMPORTS = {
    "sglang": "from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket as B",
    "ms-swift:flattened": "from swift.rlhf_trainers.utils import FlattenedTensorBucket as B",
    "ms-swift:sender": "from swift.ray.megatron.rollout.weight_transfer import BucketedWeightSender as S",
    "lmdeploy": "from lmdeploy.utils import FlattenedTensorBucket as B",
    "vllm": "from vllm.distributed.weight_transfer.packed_tensor import pack_tensors as p, unpack_tensor as u",
    "rlinf": "from rlinf.hybrid_engines.weight_syncer.bucket_syncer import iter_named_tensor_buckets as f",
    "cosmos-rl:packer": "from cosmos_rl.utils.tensor_packing import pack_tensors_into_buffer as f",
    "checkpoint-engine": (
        "from checkpoint_engine.data_types import MemoryBuffer as M; "
        "from checkpoint_engine.pin_memory import _normal_pin_memory as f"
    ),
    "verl": "from verl.workers.rollout.sglang_rollout.utils import get_named_tensor_buckets as f",
    "verl:chunks": "from verl.checkpoint_engine.base import split_weight_chunks as f",
    "verl:sender": "from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender as S",
}
_LINES: Mapping[str, Mapping[str, str]] = {
    "checkpoint-engine@0.4.2": dict.fromkeys(("packing.round-trip", "values.conserved"), _PINNED_MEMORY),
    "cosmos-rl@0.4.6:packer": dict.fromkeys(("packing.round-trip", "values.conserved"), _CONJUGATED),
    "lmdeploy@0.18.0": _ELEMENTS,
    "ms-swift@4.1.3:flattened": _OF_THE_FIRST,
    "ms-swift@4.6.0:flattened": _BYTES,
    "ms-swift@4.6.0:sender": {"values.conserved": _SENT},
    "rlinf@0.3.0": {"values.conserved": _LOST, "values.tied": _LOST},
    "sglang@0.5.5.post3": _ELEMENTS,
    "sglang@0.5.23": _BYTES,
    "vllm@0.31.0": {**_CHUNKED, "values.conserved": _SCALAR},
    "vllm@0.31.0:stream": {"values.conserved": _SCALAR, "memory.peak": _PEAK},
    "vllm@0.33.0": _CHUNKED,
    "vllm@0.33.0:stream": {"values.conserved": _PACKED, "memory.peak": _PEAK},
    "verl@0.7.1": _CLONED,
    "verl@0.8.0": _CLONED,
    "verl@0.9.0": _GUARDED,
    "verl@0.9.1": {**_GUARDED, "memory.released-after-flush": _STALE},
    "verl@0.9.1:chunks": {
        "values.conserved": _LATE.format(f"iter({_ROWS})"),
        "values.duplicates": _LATE.format(_EMPTY),
        "values.tied": _LATE.format(_EMPTY),
    },
    "verl@0.8.0:sender": {"values.conserved": _SENT_LATE.format(_ROWS)},
    "verl@0.9.0:sender": {"values.conserved": _SENT_LATE.format(_ODD)},
}


def lines(spec: str) -> dict[str, str]:
    """The line for each property of a target that there is one for."""
    project, _, rest = spec.partition("@")
    _, _, which = rest.partition(":")
    imported = _IMPORTS.get(f"{project}:{which}".removesuffix(":")) or _IMPORTS.get(project, "")
    return {name: _whole(imported, line) for name, line in _LINES.get(spec, {}).items()}


def _whole(imported: str, line: str) -> str:
    used = [name for name in ("asyncio", "types", "weakref") if f"{name}." in line]
    return f"import {', '.join(sorted(['torch', *used]))}; {imported}; {line}"
