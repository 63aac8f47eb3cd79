"""The sound bucketer keeps each rule of the contract, and each generation has the fault it is known for."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
import torch

import bucketproof.reference as reference
from bucketproof.reference import (
    always_clone,
    base_guard,
    compact,
    get_named_tensor_buckets,
    get_named_tensor_buckets_sync,
    storage_size,
)

MiB = 1 << 20
GENERATIONS = [always_clone, storage_size, base_guard]
SOUND = [get_named_tensor_buckets, get_named_tensor_buckets_sync]
for_every_bucketer = pytest.mark.parametrize("bucketer", SOUND + GENERATIONS)
for_every_sound_bucketer = pytest.mark.parametrize("bucketer", SOUND)
in_every_mode = pytest.mark.parametrize(
    "mode", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__
)


async def consume(buckets, use) -> None:
    """Call ``use`` with each bucket of either kind of bucketer, and drop the bucket before the next."""
    if hasattr(buckets, "__aiter__"):
        async for bucket in buckets:
            use(bucket)
            del bucket
    else:
        for bucket in buckets:
            use(bucket)
            del bucket


async def buckets_of(bucketer, weights, bucket_bytes):
    buckets = []
    await consume(bucketer(weights, bucket_bytes), buckets.append)
    return buckets


def of_sizes(*sizes: int) -> Iterator[tuple[str, torch.Tensor]]:
    for index, size in enumerate(sizes):
        yield f"w{index}", torch.full((size,), index, dtype=torch.uint8)


async def one_by_one(items) -> AsyncIterator[tuple[str, torch.Tensor]]:
    for item in items:
        await asyncio.sleep(0)
        yield item


def sizes_of(buckets) -> list[list[int]]:
    return [[tensor.nbytes for _, tensor in bucket] for bucket in buckets]


# What the published unit tests of this family of bucketers ask.


def test_an_owned_contiguous_tensor_comes_back_as_the_same_object():
    tensor = torch.randn(4, 8)
    assert compact(tensor) is tensor


def test_a_contiguous_view_into_a_larger_buffer_comes_back_in_storage_of_its_own():
    buffer = torch.randn(1024)
    view = buffer[16:48].view(4, 8)
    compacted = compact(view)
    assert compacted.untyped_storage().data_ptr() != buffer.untyped_storage().data_ptr()
    assert compacted.untyped_storage().nbytes() == 4 * 8 * 4
    assert torch.equal(compacted, view)


def test_a_transposed_tensor_comes_back_contiguous_in_storage_of_its_own():
    tensor = torch.randn(4, 8)
    compacted = compact(tensor.t())
    assert compacted.is_contiguous()
    assert compacted.data_ptr() != tensor.data_ptr()
    assert torch.equal(compacted, tensor.t())


@pytest.mark.asyncio
@for_every_bucketer
async def test_values_are_preserved_through_buckets_of_half_a_mebibyte(bucketer):
    fused = torch.randn(4, 256, 256)
    weights = [(f"experts.{index}", fused[index]) for index in range(4)]
    weights += [("head", torch.randn(256, 128).t()), ("norm", torch.randn(256))]
    buckets = await buckets_of(bucketer, weights, 0.5 * MiB)
    arrived = [item for bucket in buckets for item in bucket]
    assert sizes_of(buckets) == [[MiB // 4, MiB // 4], [MiB // 4, MiB // 4], [MiB // 8, 1024]]
    assert [name for name, _ in arrived] == [name for name, _ in weights]
    assert all(torch.equal(tensor, sent) for (_, tensor), (_, sent) in zip(arrived, weights, strict=True))


# Where a bucket ends.


@pytest.mark.asyncio
@for_every_bucketer
@pytest.mark.parametrize(
    ("sizes", "bucket_bytes", "expected"),
    [
        pytest.param([], 8, [], id="empty stream"),
        pytest.param([3], 8, [[3]], id="one item"),
        pytest.param([4, 4, 1], 8, [[4, 4], [1]], id="exact fit"),
        pytest.param([4, 5, 3], 8, [[4], [5, 3]], id="one byte over"),
        pytest.param([4, 3, 1], 7.5, [[4, 3], [1]], id="limit between two bytes"),
        pytest.param([9], 8, [[9]], id="only an oversize item"),
        pytest.param([9, 9, 1], 8, [[9], [9], [1]], id="oversize items in a row"),
        pytest.param([2, 9, 2, 3], 8, [[2], [9], [2, 3]], id="oversize item amid others"),
        pytest.param([8, 8], 8, [[8], [8]], id="items of the limit's size"),
        pytest.param([5, 5, 1, 1], 8, [[5], [5, 1, 1]], id="order before fill"),
        pytest.param([0, 0], 1, [[0, 0]], id="zero-byte items"),
        pytest.param([1, 0, 1], 1, [[1, 0], [1]], id="zero-byte item in a full bucket"),
        pytest.param([1, 1, 1], 0.5, [[1], [1], [1]], id="limit below the smallest item"),
        pytest.param([1, 2, 3], float("inf"), [[1, 2, 3]], id="no limit"),
    ],
)
async def test_buckets_are_filled_first_fit_in_the_order_of_the_stream(bucketer, sizes, bucket_bytes, expected):
    assert sizes_of(await buckets_of(bucketer, of_sizes(*sizes), bucket_bytes)) == expected


@pytest.mark.asyncio
@for_every_bucketer
async def test_duplicate_names_and_names_of_any_kind_all_arrive(bucketer):
    names = ["w", "w", "", "<script>", "层.0"]
    buckets = await buckets_of(bucketer, ((name, torch.zeros(1)) for name in names), 8)
    assert [name for bucket in buckets for name, _ in bucket] == names


@pytest.mark.asyncio
@for_every_bucketer
async def test_lists_iterators_and_generators_give_the_same_buckets(bucketer):
    for kind in (list, lambda weights: iter(list(weights)), iter):
        weights = kind(of_sizes(3, 4, 5, 1, 4))
        assert sizes_of(await buckets_of(bucketer, weights, 8)) == [[3, 4], [5, 1], [4]]


@pytest.mark.asyncio
@pytest.mark.parametrize("bucketer", [get_named_tensor_buckets, *GENERATIONS])
async def test_async_producers_give_the_same_buckets(bucketer):
    weights = one_by_one(of_sizes(3, 4, 5, 1, 4))
    assert sizes_of(await buckets_of(bucketer, weights, 8)) == [[3, 4], [5, 1], [4]]


# Errors and early ends.


@pytest.mark.asyncio
@for_every_sound_bucketer
@pytest.mark.parametrize("bucket_bytes", [0, -1, 0.0, -0.5, float("nan"), float("-inf")])
async def test_a_limit_that_is_not_positive_is_refused_before_the_producer_is_touched(bucketer, bucket_bytes):
    class Untouchable:
        def __iter__(self):
            raise AssertionError("the producer was touched")

    with pytest.raises(ValueError, match="bucket_bytes must be positive"):
        await buckets_of(bucketer, Untouchable(), bucket_bytes)


@pytest.mark.asyncio
@for_every_sound_bucketer
async def test_an_error_of_the_producer_passes_unchanged_and_leaves_delivered_buckets_alone(bucketer):
    error = LookupError("no such layer")

    def failing():
        yield from of_sizes(4, 4, 4)
        raise error

    delivered = []
    with pytest.raises(LookupError) as caught:
        await consume(bucketer(failing(), 8), delivered.append)
    assert caught.value is error
    assert [[tensor.tolist() for _, tensor in bucket] for bucket in delivered] == [[[0] * 4, [1] * 4]]


@pytest.mark.asyncio
async def test_an_error_that_is_kept_does_not_keep_the_open_bucket():
    references = []

    def failing():
        references.append(weakref.ref(tensor := torch.zeros(4)))
        yield "w", tensor
        del tensor
        raise LookupError

    with pytest.raises(LookupError):
        await buckets_of(get_named_tensor_buckets, failing(), 8)
    assert references[0]() is None


class Closable:
    """A producer that records how far it was pulled, and whether it was closed."""

    def __init__(self) -> None:
        self.pulled = 0
        self.is_closed = False

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        try:
            for item in of_sizes(*[4] * 10):
                self.pulled += 1
                yield item
        finally:
            self.is_closed = True


class AsyncClosable(Closable):
    __iter__ = None

    async def __aiter__(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        try:
            for item in of_sizes(*[4] * 10):
                self.pulled += 1
                await asyncio.sleep(0)
                yield item
        finally:
            await asyncio.sleep(0)
            self.is_closed = True


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "begin"), [(Closable, iter), (AsyncClosable, aiter)])
async def test_closing_early_closes_the_producer(kind, begin):
    producer = kind()
    weights = begin(producer)  # held here: a generator that nobody holds is closed by Python
    buckets = get_named_tensor_buckets(weights, 8)
    assert sizes_of([await anext(buckets)]) == [[4, 4]]
    assert producer.pulled == 3
    assert not producer.is_closed
    await buckets.aclose()
    assert producer.is_closed


def test_closing_the_sync_bucketer_early_closes_the_producer():
    producer = Closable()
    weights = iter(producer)
    buckets = get_named_tensor_buckets_sync(weights, 8)
    next(buckets)
    buckets.close()
    assert producer.is_closed


@pytest.mark.asyncio
@for_every_bucketer
async def test_a_completed_sync_exhausts_the_producer(bucketer):
    producer = Closable()
    await buckets_of(bucketer, producer, 8)
    assert producer.pulled == 10
    assert producer.is_closed


@pytest.mark.asyncio
async def test_cancelling_the_consumer_closes_a_waiting_producer_and_leaves_no_task():
    is_closed = asyncio.Event()

    async def waiting():
        try:
            yield "w", torch.zeros(1)
            await asyncio.Event().wait()
        finally:
            is_closed.set()

    tasks_before = asyncio.all_tasks()
    consumer = asyncio.create_task(buckets_of(get_named_tensor_buckets, waiting(), 8))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert is_closed.is_set()
    assert asyncio.all_tasks() == tasks_before


@pytest.mark.asyncio
@in_every_mode
async def test_the_consumer_runs_in_its_own_grad_mode(mode):
    def state():
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with mode():
        expected = state()
        async for _ in get_named_tensor_buckets(of_sizes(4, 9, 4), 8):
            assert state() == expected
    for _ in get_named_tensor_buckets_sync(of_sizes(4, 9, 4), 8):
        assert state() == (True, False)


# Memory: what is held, and for how long.


@pytest.mark.asyncio
@for_every_bucketer
async def test_nothing_of_a_flushed_bucket_is_alive_when_the_producer_is_advanced(bucketer):
    references, alive = [], []

    def watching():
        for index in range(8):
            alive.append(sum(reference() is not None for reference in references))
            tensor = torch.zeros(4, dtype=torch.uint8)
            yield f"w{index}", tensor
            del tensor

    def dropping(bucket):
        references.extend(weakref.ref(tensor) for _, tensor in bucket)

    await consume(bucketer(watching(), 8), dropping)
    assert len(references) == 8
    assert alive == [0] * 8


@pytest.mark.asyncio
async def test_a_tensor_is_released_by_the_bucketer_once_the_consumer_has_its_bucket():
    buckets = get_named_tensor_buckets(of_sizes(8, 8), 8)
    bucket = await anext(buckets)
    reference = weakref.ref(bucket[0][1])
    bucket.clear()
    assert reference() is None
    await buckets.aclose()


@pytest.mark.asyncio
async def test_the_consumer_may_change_a_bucket():
    sizes = []
    async for bucket in get_named_tensor_buckets(of_sizes(4, 4, 4, 4), 8):
        sizes.append(len(bucket))
        bucket *= 3
    assert sizes == [2, 2]


def lent(view):
    """Yield four weights, each received into the one buffer that they share, as ``view`` of it."""
    buffer = torch.empty(8)
    for index in range(4):
        buffer.fill_(index)
        yield f"w{index}", view(buffer)
    buffer.fill_(-1)


async def first_values(bucketer, weights) -> list[float]:
    buckets = await buckets_of(bucketer, weights, 1024)
    return [tensor.flatten()[0].item() for bucket in buckets for _, tensor in bucket]


@pytest.mark.asyncio
@for_every_sound_bucketer
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda buffer: buffer.view(2, 4), id="exact cover"),
        pytest.param(lambda buffer: buffer.detach(), id="detach"),
        pytest.param(lambda buffer: buffer[:4], id="slice"),
        pytest.param(lambda buffer: torch.from_dlpack(buffer), id="from_dlpack"),
        pytest.param(lambda buffer: torch.from_numpy(buffer.numpy()), id="from_numpy"),
        pytest.param(lambda buffer: torch.unsafe_split(buffer, 4)[0], id="unsafe_split"),
    ],
)
@in_every_mode
async def test_values_survive_the_reuse_of_a_receive_buffer(bucketer, view, mode):
    with mode():
        assert await first_values(bucketer, lent(view)) == [0, 1, 2, 3]


@pytest.mark.asyncio
@for_every_sound_bucketer
async def test_owned_tensors_are_passed_on_in_place(bucketer):
    addresses = []

    def owned():
        for index in range(4):
            gathered = torch.zeros(2, 4) + index
            addresses.append(gathered.data_ptr())
            gathered = gathered.view(8)
            yield f"w{index}", gathered

    buckets = await buckets_of(bucketer, owned(), 64)
    assert [tensor.data_ptr() for bucket in buckets for _, tensor in bucket] == addresses


@pytest.mark.asyncio
@for_every_sound_bucketer
async def test_no_tensor_carries_a_graph(bucketer):
    parameter = torch.nn.Parameter(torch.ones(4))
    weights = [("live", parameter), ("view", parameter[1:]), ("result", parameter * 2)]
    buckets = await buckets_of(bucketer, iter(weights), 1024)
    assert not any(tensor.requires_grad for bucket in buckets for _, tensor in bucket)


# The generations, each with the fault that made the next one necessary.


@pytest.mark.asyncio
async def test_always_clone_copies_what_is_owned():
    tensor = torch.zeros(4)
    ((_, arrived),) = (await buckets_of(always_clone, [("w", tensor)], 64))[0]
    assert arrived is not tensor
    assert await first_values(always_clone, lent(lambda buffer: buffer.view(2, 4))) == [0, 1, 2, 3]


@pytest.mark.asyncio
async def test_storage_size_keeps_a_view_that_covers_the_receive_buffer():
    tensor = torch.zeros(4)
    ((_, arrived),) = (await buckets_of(storage_size, [("w", tensor)], 64))[0]
    assert arrived is tensor
    assert await first_values(storage_size, lent(lambda buffer: buffer[:4])) == [0, 1, 2, 3]
    assert await first_values(storage_size, lent(lambda buffer: buffer.view(2, 4))) == [-1] * 4


@pytest.mark.asyncio
async def test_base_guard_keeps_a_detached_view_and_copies_a_view_of_a_dropped_base():
    tensor = torch.zeros(4)
    view = torch.zeros(4).view(2, 2)
    (bucket,) = await buckets_of(base_guard, [("w", tensor), ("v", view)], 64)
    assert bucket[0][1] is tensor
    assert bucket[1][1].data_ptr() != view.data_ptr()
    assert await first_values(base_guard, lent(lambda buffer: buffer.view(2, 4))) == [0, 1, 2, 3]
    assert await first_values(base_guard, lent(lambda buffer: buffer.detach())) == [-1] * 4


def test_everything_that_is_exported_exists_and_is_documented():
    assert all(getattr(reference, name).__doc__ for name in reference.__all__)
