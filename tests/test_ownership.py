"""What the reference compaction keeps, and what it copies."""

import copy
import ctypes
import io
import itertools
import mmap
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from bucketproof.reference import compact, ownership, owns_its_memory

MODES = (torch.enable_grad, torch.no_grad, torch.inference_mode)
in_every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
with_and_without_grad = pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "requires_grad"])

Maker = Callable[[bool], torch.Tensor]


class Subclass(torch.Tensor):
    """A tensor subclass without behaviour of its own."""


class ViewAs(torch.autograd.Function):
    """Ends in ``view_as``, as gathering a sharded tensor does: nobody else holds the base of its result."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def weight(requires_grad: bool = False) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).clone().requires_grad_(requires_grad)


def pair(requires_grad: bool = False) -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 2, 2).clone().requires_grad_(requires_grad)


def bytes_at(address: int, tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(address, tensor.numel() * tensor.element_size())


def content(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a contiguous tensor, without exporting its memory to anybody."""
    assert tensor.is_contiguous()
    return bytes_at(tensor.data_ptr(), tensor) if tensor.numel() else b""


def overwrite(tensor: torch.Tensor) -> None:
    """Overwrite the whole storage in which a tensor lies, in any grad mode."""
    storage = tensor.untyped_storage()
    ctypes.memset(storage.data_ptr(), 0xA5, storage.nbytes())


def is_in_own_storage(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


# Each makes a contiguous tensor whose memory nobody else can reach.
OWNED: dict[str, Maker] = {
    "fresh": weight,
    "stack": lambda grad: torch.stack([weight(grad), weight(grad)]),
    "cat": lambda grad: torch.cat([weight(grad), weight(grad)]),
    "arithmetic": lambda grad: weight(grad) * 2 + 1,
    "cast": lambda grad: weight(grad).to(torch.bfloat16),
    "contiguous copy": lambda grad: weight(grad).t().contiguous(),
    "kron": lambda grad: torch.kron(weight(grad), weight()),
    "view": lambda grad: weight(grad).view(12),
    "view of a result": lambda grad: (weight(grad) * 2).view(12),
    "view of a view": lambda grad: weight(grad).view(12).view(2, 6),
    "reshape": lambda grad: weight(grad).reshape(2, 6),
    "permuted and back": lambda grad: weight(grad).t().t(),
    "whole slice": lambda grad: weight(grad)[:],
    "only part of a split": lambda grad: weight(grad).split(3)[0],
    "dtype view": lambda grad: weight().view(torch.int32),
    "reshaped dtype view": lambda grad: weight().view(torch.int32).view(12),
    "view_as_complex": lambda grad: torch.view_as_complex(pair(grad)),
    "view_as_real": lambda grad: torch.view_as_real(torch.view_as_complex(pair(grad)) * 1),
    "detach": lambda grad: weight(grad).detach(),
    "detached view": lambda grad: weight(grad).view(12).detach(),
    "data": lambda grad: weight(grad).data,
    "parameter": lambda grad: torch.nn.Parameter(weight(), requires_grad=grad),
    "parameter of a view": lambda grad: torch.nn.Parameter(weight().view(12), requires_grad=grad),
    "view of a parameter": lambda grad: torch.nn.Parameter(weight(), requires_grad=grad).view(12),
    "buffer": lambda grad: torch.nn.Buffer(weight()),
    "set_": lambda grad: torch.empty(0).set_(weight()),
    "subclass": lambda grad: weight(grad).as_subclass(Subclass),
    "view of a subclass": lambda grad: weight(grad).as_subclass(Subclass).view(12),
    "autograd function": lambda grad: ViewAs.apply(weight(grad)),
    "autograd function of a result": lambda grad: ViewAs.apply(weight(grad) * 2),
    "in-place on a view": lambda grad: (weight(grad) * 2).view(12).add_(1),
    "pickled": lambda grad: pickle.loads(pickle.dumps(weight())),
    "deep copy": lambda grad: copy.deepcopy(weight(grad)),
    "scalar": lambda grad: torch.tensor(1.0, requires_grad=grad),
    "scalar view": lambda grad: torch.tensor([1.0], requires_grad=grad).view(()),
    "zero size": lambda grad: torch.empty(0, 3, requires_grad=grad),
    "zero-size view": lambda grad: torch.empty(0, 3, requires_grad=grad).view(3, 0),
    "odd strides": lambda grad: weight(grad).as_strided((1, 3, 4, 1), (7, 4, 1, 0)),
    "meta": lambda grad: torch.empty(3, 4, device="meta", requires_grad=grad),
}


@in_every_mode
@with_and_without_grad
@pytest.mark.parametrize("kind", OWNED)
def test_an_owned_contiguous_tensor_is_kept(kind, requires_grad, mode):
    with mode():
        tensor = OWNED[kind](requires_grad)
    for mode_of_the_question in MODES:
        with mode_of_the_question():
            assert owns_its_memory(tensor)
            kept = compact(tensor)
        assert kept.data_ptr() == tensor.data_ptr()
        assert (kept.shape, kept.dtype) == (tensor.shape, tensor.dtype)
        assert kept.grad_fn is None
        assert not kept.requires_grad
        del kept


@in_every_mode
@pytest.mark.parametrize("kind", OWNED)
def test_names_of_the_tensor_itself_do_not_matter(kind, mode):
    with mode():
        tensor = OWNED[kind](False)
    names = [tensor, {"weight": tensor}, (tensor, tensor)]
    assert owns_its_memory(tensor)
    assert owns_its_memory(names[1]["weight"])


@in_every_mode
@pytest.mark.parametrize("kind", OWNED)
def test_a_look_at_base_and_storage_that_is_over_does_not_matter(kind, mode):
    with mode():
        tensor = OWNED[kind](False)
    tensor._base, tensor.untyped_storage(), weakref.ref(tensor.untyped_storage())
    assert owns_its_memory(tensor)


# Each takes the tensor that is about to be handed over, and makes another holder of its memory.
HOLDERS: dict[str, Callable[[torch.Tensor], object]] = {
    "view": lambda tensor: tensor.view(-1),
    "slice": lambda tensor: tensor.view(-1)[2:3],
    "detach": lambda tensor: tensor.detach(),
    "data": lambda tensor: tensor.data,
    "set_": lambda tensor: torch.empty(0, dtype=tensor.dtype).set_(tensor.detach()),
    "parameter": lambda tensor: torch.nn.Parameter(tensor.detach(), requires_grad=False),
    "dtype view": lambda tensor: tensor.detach().view(torch.int16),
    "subclass": lambda tensor: tensor.as_subclass(Subclass),
    "storage": lambda tensor: tensor.untyped_storage(),
    "typed storage": lambda tensor: tensor._typed_storage(),
    "slice of the storage": lambda tensor: tensor.untyped_storage()[:4],
    "DLPack capsule": lambda tensor: tensor.detach().__dlpack__(),
    "DLPack tensor": lambda tensor: torch.from_dlpack(tensor.detach()),
    "DLPack array": lambda tensor: np.from_dlpack(tensor.detach()),
    "numpy array": lambda tensor: tensor.detach().numpy(),
}
# What is handed over, in relation to the tensor of which the memory is held.
HAND_OVERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "itself": lambda source: source,
    "view": lambda source: source.view(4, 3),
    "detach": lambda source: source.detach(),
    "dtype view": lambda source: source.detach().view(torch.int32),
    "autograd function": ViewAs.apply,
    "subclass": lambda source: source.as_subclass(Subclass),
    "parameter": lambda source: torch.nn.Parameter(source.detach(), requires_grad=False),
}


@in_every_mode
@with_and_without_grad
@pytest.mark.parametrize("hand_over", HAND_OVERS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_somebody_else_holds_is_copied(holder, hand_over, requires_grad, mode):
    with mode():
        source = weight(requires_grad)
        other = HOLDERS[holder](source)
        tensor = HAND_OVERS[hand_over](source)
    del source
    assert_copied(tensor)
    del other


@in_every_mode
@with_and_without_grad
@pytest.mark.parametrize("hand_over", [name for name in HAND_OVERS if name != "itself"])
def test_a_source_that_is_still_named_is_copied(hand_over, requires_grad, mode):
    with mode():
        source = weight(requires_grad)
        tensor = HAND_OVERS[hand_over](source)
    assert_copied(tensor)
    assert source is not tensor


def assert_copied(tensor: torch.Tensor) -> None:
    before = content(tensor)
    for mode in MODES:
        with mode():
            assert not owns_its_memory(tensor)
            copied = compact(tensor)
        assert content(copied) == before
        assert (copied.shape, copied.dtype) == (tensor.shape, tensor.dtype)
        assert copied.grad_fn is None
        assert is_in_own_storage(copied)
        overwrite(tensor)
        assert content(copied) == before
        ctypes.memmove(tensor.data_ptr(), before, len(before))


def test_a_tensor_that_autograd_saved_is_copied():
    leaf, result, exponential = weight(True), weight(True) * 2, weight(True).exp()
    graph = [leaf.sin(), result.sin(), exponential]
    for tensor in (leaf, result, exponential, leaf.view(12), result.view(12), exponential.view(12)):
        assert_copied(tensor)
    del graph


def test_a_base_that_only_autograd_holds_is_noticed():
    base = weight(True) * 2
    saved = base.sin()
    tensor = base.view(12)
    del base
    assert_copied(tensor)
    del saved


def test_the_gradient_of_a_parameter_is_copied():
    parameter = weight(True)
    parameter.sum().backward()
    assert_copied(parameter.grad)


def test_entries_of_a_state_dict_and_aliases_of_live_parameters_are_copied():
    module = torch.nn.Linear(3, 4)
    for tensor in (
        module.state_dict()["weight"],
        module.weight.detach(),
        module.weight.data,
        module.weight.view(12),
    ):
        assert_copied(tensor)


def test_tied_names_are_copied_where_they_are_two_tensors():
    embedding = weight()
    head = embedding.view(3, 4)
    assert_copied(head)
    assert_copied(embedding)


def test_one_of_two_disjoint_parts_of_a_buffer_is_copied():
    first, second = torch.arange(8.0).split(4)
    assert not owns_its_memory(first)
    del second
    assert not owns_its_memory(first)


# Memory of others, whom torch cannot count. One tensor at a time: two over one memory would show each other.
FOREIGN: dict[str, Callable[[str, mmap.mmap], torch.Tensor]] = {
    "from_numpy": lambda path, mapping: torch.from_numpy(np.arange(12.0)),
    "as_tensor": lambda path, mapping: torch.as_tensor(np.arange(12.0)),
    "frombuffer": lambda path, mapping: torch.frombuffer(bytearray(48), dtype=torch.float32),
    "mmap": lambda path, mapping: torch.frombuffer(mapping, dtype=torch.float32),
    "from_file": lambda path, mapping: torch.from_file(path, shared=False, size=12),
    "from_file, shared": lambda path, mapping: torch.from_file(path, shared=True, size=12),
    "from_dlpack": lambda path, mapping: torch.from_dlpack(np.arange(12.0)),
    "share_memory_": lambda path, mapping: weight().share_memory_(),
    "new shared storage": lambda path, mapping: torch.empty(0).set_(torch.UntypedStorage._new_shared(48)),
    "storage of a file": lambda path, mapping: torch.empty(0).set_(torch.UntypedStorage.from_file(path, True, 48)),
}


@in_every_mode
@pytest.mark.parametrize("kind", FOREIGN)
def test_memory_of_others_is_copied(kind, mode, tmp_path: Path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(48)))
    make = FOREIGN[kind]
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping, mode():
        is_owned = owns_its_memory(make(str(path), mapping))
        is_view_owned = owns_its_memory(make(str(path), mapping).detach().view(3, 4))
    assert (is_owned, is_view_owned) == (False, False)


def test_copy_on_write_memory_is_copied():
    tensor = weight()
    lazy = torch._lazy_clone(tensor)
    assert not owns_its_memory(tensor)
    assert not owns_its_memory(lazy)


def test_memory_once_exported_to_numpy_stays_suspect():
    tensor = weight()
    tensor.numpy()
    assert not owns_its_memory(tensor)


def test_what_cannot_be_told_from_shared_memory_is_copied():
    file = io.BytesIO()
    torch.save(weight(), file)
    file.seek(0)
    assert not owns_its_memory(torch.load(file))
    assert not owns_its_memory(torch.view_as_complex(pair().view(6, 2)))
    assert not owns_its_memory(torch.view_as_complex(pair()).conj().conj())


@in_every_mode
@with_and_without_grad
def test_a_storage_larger_than_the_tensor_is_compacted(mode, requires_grad):
    with mode():
        padded = weight(requires_grad)
        tensors = [padded[:2], padded[1], padded[0, 0], padded[:0], padded.detach().resize_(2, 4)]
        del padded
        for tensor in tensors:
            assert is_in_own_storage(compact(tensor))
            assert compact(tensor).tolist() == tensor.tolist()


def test_a_parameter_is_kept_without_its_gradient():
    parameter = torch.nn.Parameter(weight())
    parameter.grad = weight()
    kept = compact(parameter)
    assert kept.data_ptr() == parameter.data_ptr()
    assert kept.grad is None


def test_a_kept_view_does_not_keep_the_graph_of_its_base():
    leaf = weight(True)
    base, end_of_graph = leaf * 2, weakref.ref(leaf)
    with torch.no_grad():
        view = base.view(12)
    del leaf, base
    kept = compact(view)
    del view
    assert end_of_graph() is None
    assert kept.tolist() == [2.0 * i for i in range(12)]


def test_a_part_of_memory_that_nobody_else_holds_is_known_and_yet_not_owned():
    part = torch.arange(12.0).clone()[2:5]
    assert ownership.is_held_by_nobody_else(part)
    assert not owns_its_memory(part)


def test_a_part_of_memory_that_somebody_else_holds_is_not_held_alone():
    whole = torch.arange(12.0).clone()
    assert not ownership.is_held_by_nobody_else(whole[2:5])


def test_asking_keeps_no_reference():
    for make in (weight, lambda: weight().view(12)):
        tensor = make()
        storage = weakref.ref(tensor.untyped_storage())
        counts = sys.getrefcount(tensor), tensor._use_count()
        owns_its_memory(tensor)
        compact(tensor)
        assert (sys.getrefcount(tensor), tensor._use_count()) == counts
        del tensor
        assert storage() is None


# Chains. Each step leads from a tensor to another one over the whole of the same memory, where that applies.
STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda tensor: tensor.view(tensor.shape),
    "reshape": lambda tensor: tensor.reshape(-1, 4),
    "flat view": lambda tensor: tensor.unsqueeze(0).flatten(0, 1),
    "unsqueeze": lambda tensor: tensor.unsqueeze(0),
    "whole slice": lambda tensor: tensor[:],
    "narrow": lambda tensor: tensor.narrow(0, 0, tensor.shape[0]),
    "select": lambda tensor: tensor.unsqueeze(0).select(0, 0),
    "split": lambda tensor: tensor.split(tensor.shape[0])[0],
    "unsafe_split": lambda tensor: torch.unsafe_split(tensor, tensor.shape[0])[0],
    "transpose": lambda tensor: tensor.transpose(0, -1),
    "expand": lambda tensor: tensor.expand(tensor.shape),
    "as_strided": lambda tensor: tensor.as_strided(tensor.shape, tensor.stride()),
    "detach": lambda tensor: tensor.detach(),
    "data": lambda tensor: tensor.data,
    "dtype view": lambda tensor: tensor.detach().view(torch.int32 if tensor.dtype is torch.float32 else torch.float32),
    "set_": lambda tensor: torch.empty(0, dtype=tensor.dtype).set_(tensor.detach()),
    "parameter": lambda tensor: torch.nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad),
    "subclass": lambda tensor: tensor.as_subclass(Subclass),
    "autograd function": lambda tensor: ViewAs.apply(tensor),
}
CHAINS = [chain for length in (1, 2, 3) for chain in itertools.product(STEPS, repeat=length)]


def follow(chain: tuple[str, ...], tensor: torch.Tensor) -> torch.Tensor:
    for name in chain:
        tensor = STEPS[name](tensor)
    return tensor


def is_held_by_its_own_graph(tensor: torch.Tensor) -> bool:
    """Tell whether a leaf of the graph lies in the tensor's memory though torch does not call it the base.

    That is what `torch.unsafe_split` of a leaf returns, and nothing tells the graph from another holder.
    """
    nodes = [tensor.grad_fn]
    for node in nodes:
        nodes += [following for following, _ in getattr(node, "next_functions", ())]
    leaves = [node.variable for node in nodes if hasattr(node, "variable")]
    return any(leaf is not tensor._base and leaf.data_ptr() == tensor.data_ptr() for leaf in leaves)


@in_every_mode
@with_and_without_grad
def test_every_chain_over_a_dropped_base_is_kept(requires_grad, mode):
    wrong = []
    with mode():
        for chain in CHAINS:
            tensor = follow(chain, weight(requires_grad))
            is_kept = compact(tensor).data_ptr() == tensor.data_ptr()
            if is_kept != (tensor.is_contiguous() and not is_held_by_its_own_graph(tensor)):
                wrong.append(chain)
    assert wrong == []


@in_every_mode
@with_and_without_grad
def test_no_chain_over_a_held_base_shows_what_is_written_to_it(requires_grad, mode):
    wrong = []
    with mode():
        for chain in CHAINS:
            base = weight(requires_grad)
            compacted = compact(follow(chain, base))
            before = content(compacted)
            overwrite(base)
            if content(compacted) != before:
                wrong.append(chain)
    assert wrong == []


# Copies. All bit patterns that a copy could change: NaN payloads, negative zeros, bits that are no number.
DTYPES = sorted(
    {
        dtype
        for dtype in vars(torch).values()
        if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
    },
    key=str,
)
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda tensor: tensor.t(),
    "slice": lambda tensor: tensor[1:3],
    "steps": lambda tensor: tensor[::2, 1::3],
    "expanded": lambda tensor: tensor[:1].expand(5, 6),
    "overlapping": lambda tensor: tensor.as_strided((3, 4), (1, 1)),
    "diagonal": lambda tensor: tensor.diagonal(),
    "scalar": lambda tensor: tensor[1, 2],
    "zero size": lambda tensor: tensor[:, :0],
    "singletons": lambda tensor: tensor.as_strided((1, 3, 1), (0, 2, 9)),
}
CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def every_bit_pattern(dtype: torch.dtype) -> torch.Tensor:
    """Return a 4 x 6 tensor of assorted bits; for bool, of legal ones."""
    raw = torch.arange(24 * dtype.itemsize, dtype=torch.int64).mul_(73).add_(0x7F).to(torch.uint8)
    if dtype is torch.bool:
        return (raw % 2).view(torch.bool).view(4, 6)
    return raw.view(dtype).view(4, 6)


def bits(tensor: torch.Tensor) -> list[int]:
    """Return the elements, in order, as the integers that their bits make."""
    if tensor.element_size() == 16:
        tensor = torch.view_as_real(tensor)
    return tensor.view(CARRIERS[tensor.element_size()]).flatten().tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_copy_is_bit_equal_and_dense(dtype, layout):
    tensor = LAYOUTS[layout](every_bit_pattern(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = compact(tensor)
    assert bits(copied) == bits(tensor)
    assert (copied.shape, copied.dtype) == (tensor.shape, tensor.dtype)
    assert copied.is_contiguous()
    assert copied._base is None
    assert is_in_own_storage(copied)
    assert owns_its_memory(copied)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conjugate_and_negative_bits_are_applied_to_the_copy(dtype, layout):
    plain = LAYOUTS[layout](every_bit_pattern(dtype))
    real, imaginary = torch.view_as_real(plain).unbind(-1)
    sign = torch.iinfo(CARRIERS[dtype.itemsize // 2]).min
    negative_real, negative_imaginary = (negated_bits(part, sign) for part in (real, imaginary))
    assert parts(compact(plain.conj())) == (bits(real), negative_imaginary)
    assert parts(compact(torch._neg_view(plain))) == (negative_real, negative_imaginary)
    assert parts(compact(torch._neg_view(plain.conj()))) == (negative_real, bits(imaginary))
    assert bits(compact(plain.conj().imag)) == negative_imaginary


def negated_bits(tensor: torch.Tensor, sign: int) -> list[int]:
    return [number ^ sign for number in bits(tensor)]


def parts(tensor: torch.Tensor) -> tuple[list[int], list[int]]:
    assert not tensor.is_conj()
    assert not tensor.is_neg()
    assert is_in_own_storage(tensor)
    real, imaginary = torch.view_as_real(tensor).unbind(-1)
    return bits(real), bits(imaginary)


def test_the_negative_bit_of_integers_is_applied():
    assert compact(torch._neg_view(torch.arange(4))).tolist() == [0, -1, -2, -3]


def test_an_owned_tensor_with_a_conjugate_bit_is_copied():
    tensor = torch.view_as_complex(pair()).detach()._conj()
    assert not compact(tensor).is_conj()


def test_tensors_without_an_ordinary_storage_are_passed_through_by_value():
    sparse = torch.eye(3).to_sparse()
    assert not owns_its_memory(sparse)
    assert torch.equal(compact(sparse).to_dense(), torch.eye(3))
    mapped = torch.vmap(compact)(weight())
    assert torch.equal(mapped, weight())
    answers = []
    torch.vmap(lambda row: answers.append(owns_its_memory(row)) or row)(weight())
    assert answers == [False]


class Wrapped(torch.Tensor):
    """A subclass that handles dispatch itself, and has the data in another tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        inner = [argument.inner if isinstance(argument, cls) else argument for argument in args]
        return cls(function(*inner, **(kwargs or {})))


def test_a_tensor_that_wraps_another_is_copied():
    inner = weight()
    wrapped = Wrapped(inner)
    assert not owns_its_memory(wrapped)
    assert compact(wrapped).inner.data_ptr() != inner.data_ptr()
    assert torch.equal(compact(wrapped).inner, inner)
    assert compact(Wrapped(inner.t())).inner.is_contiguous()


def test_a_build_that_cannot_tell_copies_everything(monkeypatch):
    monkeypatch.setattr(ownership, "_OWNED", frozenset())
    tensor = weight()
    assert not owns_its_memory(tensor)
    assert compact(tensor).data_ptr() != tensor.data_ptr()


def test_a_build_that_lacks_a_counter_copies_everything(monkeypatch):
    monkeypatch.delattr(torch._C, "_storage_Use_Count")
    monkeypatch.setattr(ownership, "_OWNED", ownership._calibrated())
    tensor = weight()
    assert not owns_its_memory(tensor)
    assert compact(tensor).tolist() == tensor.tolist()
    assert compact(tensor).data_ptr() != tensor.data_ptr()


def test_samples_are_made_on_the_cpu_in_every_mode_and_with_and_without_grad(monkeypatch):
    made = set()

    def source(requires_grad):
        sample = ownership._leaf(requires_grad)
        made.add((requires_grad, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), sample.device.type))
        return sample

    monkeypatch.setattr(ownership, "_SOURCES", (source,))
    modes = ((True, False), (False, False), (False, True))
    for samples in (ownership._owned_fingerprints, ownership._shared_fingerprints):
        made.clear()
        with torch.device("meta"):
            list(samples())
        assert made == {(requires_grad, *mode, "cpu") for requires_grad in (False, True) for mode in modes}


@pytest.mark.parametrize("make", ownership._SOURCES)
def test_what_samples_are_made_of_requires_grad_if_told_to(make):
    assert make(True).requires_grad
    assert not make(False).requires_grad


def test_samples_are_held_in_every_way():
    owned, shared = list(ownership._owned_fingerprints()), list(ownership._shared_fingerprints())
    ways = len(ownership._HOLDS)
    themselves = len(owned) // len(ownership._DERIVATIONS)
    assert len(owned) == 3 * 2 * 2 * 3
    assert len(shared) == len(owned) * ways - themselves  # a sample's own name is no holder


def test_calibration_gives_up_if_memory_of_others_cannot_be_told(monkeypatch):
    monkeypatch.setattr(ownership, "_foreign_memory_is_resizable", lambda: True)
    assert ownership._calibrated() == frozenset()


def test_calibration_gives_up_if_the_counts_do_not_tell_owned_from_shared(monkeypatch):
    assert ownership._calibrated()
    with monkeypatch.context() as patch:
        patch.setattr(ownership, "_fingerprint", lambda tensor: (1, 2, 3))
        assert ownership._calibrated() == frozenset()
    with monkeypatch.context() as patch:
        patch.delattr(torch._C, "_storage_Use_Count")
        assert ownership._calibrated() == frozenset()


class Hoarder(torch.utils._python_dispatch.TorchDispatchMode):
    """A dispatch mode that holds every tensor that is made under it."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[object] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.held.append(function(*args, **(kwargs or {})))
        return self.held[-1]


def surroundings() -> Iterator[object]:
    yield from (mode() for mode in MODES)
    yield Hoarder()
    yield torch.device("meta")


def test_calibration_gives_the_same_wherever_the_import_happens():
    for surrounding in surroundings():
        with surrounding:
            assert ownership._calibrated() == ownership._OWNED


@pytest.mark.parametrize("is_cuda", [False, True])
def test_the_allocator_is_told_which_stream_reads_what_is_copied(is_cuda, monkeypatch):
    source, current_stream = Mock(is_cuda=is_cuda), Mock()
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)

    ownership._tell_that_it_is_read(source)

    if is_cuda:
        current_stream.assert_called_once_with(source.device)
        source.record_stream.assert_called_once_with(current_stream.return_value)
    else:
        assert not source.record_stream.called
        assert not current_stream.called


def test_of_what_is_copied_it_is_told(monkeypatch):
    told = []
    monkeypatch.setattr(ownership, "_tell_that_it_is_read", lambda source: told.append(source.data_ptr()))
    buffer = torch.zeros(4)

    compact(buffer[1:])
    compact(torch.zeros(4))

    assert told == [buffer[1:].data_ptr()]
