"""The consumer of a run, who takes notes.

Four kinds of evidence are taken, since each misses what another sees: bits are read, overwritten at the source and
read again; addresses are compared; lifetimes are watched through weak references; and a ledger counts what is
allocated. What is held here are the buckets, as a consumer holds them, and nothing of a hand-over.
"""

from __future__ import annotations

import gc
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.properties.buckets import Malformed, pairs_of
from bucketproof.properties.evidence import Facts, Span, alive, bits, facts, watch
from bucketproof.properties.ledger import Ledger
from bucketproof.properties.payload import Unpacked
from bucketproof.properties.pending import Pending
from bucketproof.properties.ranks.meeting import Meeting
from bucketproof.properties.run import Bucket, Delivered, Event, HandOver, Moment, Run
from bucketproof.properties.surroundings import changed, surroundings
from bucketproof.strategies import DEVICES, DTYPES, Custody, Stream
from bucketproof.strategies.content import POISON
from bucketproof.strategies.memory import Buffer, read

if TYPE_CHECKING:
    from bucketproof.properties.ranks.shipping import Shipment

_Noted = list[tuple[Delivered, torch.Tensor]]


class Consumer:
    """Receives the buckets of one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.ledger = Ledger(self._grown)
        self._device = DEVICES[run.device]
        self.stream = Stream(
            run.plan,
            device=run.device,
            produced=self._produced,
            overwritten=self._overwritten,
            working=self._producer_at_work,
            suspending=self._suspending,
            raising=lambda error: self.run.events.append(Event("failed", text=type(error).__name__)),
        )
        self.cancel: Callable[[], object] = lambda: None
        """Cancels the consuming task, if there is one."""
        self._watched: list[StorageWeakRef] = []
        self._waiting: dict[str, deque[int]] = defaultdict(deque)
        self._pending = Pending(run.promises)
        self._held: list[tuple[Any, _Noted]] = []
        self._dropped: list[tuple[int, StorageWeakRef]] = []
        self._surroundings = surroundings()
        self._state = self._device.state()
        self._meeting = Meeting() if run.plan.consumer == "gather" else None
        self._shipment = _shipment(run.device) if run.plan.consumer == "ship" else None

    # What the producer tells.

    def _producer_at_work(self) -> AbstractContextManager[None]:
        if self._dropped:
            with self.ledger.suspended():
                self._look_for_stale("the producer was advanced")
        return self.ledger.suspended()

    def _produced(self, index: int, tensor: torch.Tensor) -> None:
        item = self.run.plan.items[index]
        seen = facts(tensor)
        handed_over = HandOver(index, item, seen, self._due(tensor, seen))
        self._watched.append(watch(tensor))
        self.run.handed_over.append(handed_over)
        self.run.events.append(Event("produced", index))
        self.ledger.handed_over(index, handed_over.facts.storage_id, handed_over.facts.nbytes)
        self._waiting[item.name].append(index)
        self._pending.add(handed_over)

    def _overwritten(self, buffer: Buffer) -> None:
        self.run.events.append(Event("overwritten", place=Span(*buffer.place)))

    def _due(self, tensor: torch.Tensor, seen: Facts) -> Facts:
        cast = DTYPES.get(self.run.promises.dtype or "")
        return seen if cast in (None, tensor.dtype) else facts(tensor.detach().to(cast))

    def _suspending(self, index: int) -> None:
        if self.run.plan.ends == "cancel" and index == self.run.plan.ends_at:
            self.run.interrupted = True
            self.run.events.append(Event("cancelled", index))
            self.cancel()

    # What the bucketer does.

    def _grown(self) -> None:
        """The bucketer has allocated. What had to be copied for the open bucket is allowed, and one item beside."""
        owed, largest = self._pending.owed, self._pending.largest
        # After one time that is too much, the next to be told is one that is more by a quarter.
        told = self.run.peaks[-1][0] * 5 // 4 if self.run.peaks else 0
        enough = max(owed + largest, told)
        if (live := self.ledger.living(enough)) > enough:
            self.run.peaks.append((live, owed, largest))

    def receive(self, bucket: Any) -> None:
        """Take a bucket and note what there is to note."""
        number = len(self.run.buckets)
        pairs = pairs_of(bucket, number)
        if isinstance(bucket, Unpacked):
            self.run.packings.append(bucket.packing)
        pulled = self.stream.pulled
        self.look_around(f"while bucket {number} was consumed")
        noted = [(self._note(number, name, tensor), tensor) for name, tensor in pairs]
        del pairs
        self.run.buckets.append(Bucket(pulled))
        self.run.events.append(Event("delivered", number))
        self.run.delivered.extend(delivered for delivered, _ in noted)
        self._read_again("held", self._held[-1:])
        self.stream.delivered(self._all_delivered_before())
        self._held.append((bucket, noted))
        if self._meeting:
            self._meeting.over_bucket(self.run.delivered[-len(noted) :] if noted else [])
        if self._shipment:
            self._shipment.send([tensor for _, tensor in noted])
        del bucket, noted
        if self.run.plan.consumer in ("drop", "clear"):
            self.drop(written=self.run.plan.consumer == "clear")

    def _all_delivered_before(self) -> int:
        return self._pending.first

    def _note(self, bucket: int, name: str, tensor: torch.Tensor) -> Delivered:
        seen = facts(tensor)
        self.ledger.delivered(seen.storage_id)
        index = self._matching(name, seen)
        if index is not None:
            self._waiting[name].remove(index)
            self._pending.remove(index)
        return Delivered(
            bucket=bucket,
            name=name,
            facts=seen,
            lent=self.stream.lends(*seen.storage),
            index=index,
            kept=index is not None and self._is_kept(seen, index),
        )

    def _matching(self, name: str, seen: Facts) -> int | None:
        """The hand-over that a tensor is: of those of its name the first with its bits, or else the first."""
        waiting = self._waiting[name]
        for index in waiting:
            due = self.run.handed_over[index].expected
            if (due.shape, due.dtype, due.bits) == (seen.shape, seen.dtype, seen.bits):
                return index
        return waiting[0] if waiting else None

    def _is_kept(self, seen: Facts, index: int) -> bool:
        given = self.run.handed_over[index].facts
        same = (seen.storage_id, seen.span) == (given.storage_id, given.span)
        return same and alive(self._watched[index])  # else the address came round again

    def drop(self, place: int = -1, *, written: bool = False) -> None:
        """Let go of a bucket that is held, of the last by default; `written`, after it was emptied and written over."""
        bucket, noted = self._held.pop(place)
        mine = [(delivered, tensor) for delivered, tensor in noted if self._is_the_consumers(delivered)]
        if written:
            for _, tensor in mine:
                tensor.untyped_storage().fill_(POISON)  # type: ignore[attr-defined]
            if hasattr(bucket, "clear"):
                bucket.clear()
        self._dropped.extend((delivered.bucket, watch(tensor)) for delivered, tensor in mine)

    @property
    def held(self) -> int:
        """How many buckets are held."""
        return len(self._held)

    def _is_the_consumers(self, delivered: Delivered) -> bool:
        """Whether nobody but the bucketer and its consumer can have a right to the memory."""
        if delivered.index is None or not delivered.facts.nbytes:
            return False  # it may lie anywhere
        given = self.run.handed_over[delivered.index]
        shared = given.custody is Custody.SHARED and given.facts.storage.overlaps(delivered.facts.storage)
        return not delivered.lent and not shared

    def look_around(self, when: str) -> None:
        """Note what of the process is not as it was."""
        self.run.traces.extend(f"{each} was not as before {when}" for each in changed(self._surroundings))
        if self._device.state() != self._state:
            self.run.traces.append(f"the current device or stream was not as before {when}")

    # What can be seen meanwhile and afterwards.

    def overwrite(self) -> None:
        """Let every lender write what it may write by now."""
        self.stream.overwrite(self._all_delivered_before())

    def look_again(self) -> None:
        """Read every bucket that is held once more."""
        self._read_again("held", self._held)
        self._look_for_changed()

    def _look_for_changed(self) -> None:
        self.run.changed = [
            noted[0][0].bucket for bucket, noted in self._held if noted and not _is_as_noted(bucket, noted)
        ]

    def _read_again(self, moment: Moment, held: list[tuple[Any, _Noted]]) -> None:
        for delivered, tensor in itertools.chain.from_iterable(noted for _, noted in held):
            now = bits(tensor)
            # Not one more copy of what is as it was.
            delivered.later.append((moment, delivered.facts.bits if now == delivered.facts.bits else now))

    def _read_elsewhere(self) -> None:
        if self._shipment:
            # Whatever was freed is in other hands by now.
            self._device.reuse(each.facts.storage.nbytes for each in self.run.handed_over)
            for delivered, there in zip(self.run.delivered, self._shipment.read(), strict=False):
                delivered.there = there
                delivered.later.append(("elsewhere", there.bits))

    def _look_for_stale(self, when: str) -> None:
        """The producer is advanced, or the sync is over: whatever was dropped should be gone."""
        if self._dropped and any(alive(ref) for _, ref in self._dropped):
            gc.collect()  # what only a cycle held is not kept
            stale = [bucket for bucket, ref in self._dropped if alive(ref)]
            self.run.stale.extend(stale)
            self.run.events.extend(Event("stale", bucket, when) for bucket in dict.fromkeys(stale))
        self._dropped.clear()

    def finish(self) -> None:
        """Let every lender write, read the buckets once more, and see what outlives the producer."""
        # A run that hangs is ended anywhere, also where a weight is watched and not yet known as handed over.
        del self._watched[len(self.run.handed_over) :]
        if self._meeting:
            self._meeting.at_the_end()
        self._read_again("end", self._held)
        self.stream.finish()
        self.run.traces.extend(self.stream.disturbed())
        self.run.traces.extend(self._rewritten())
        self._read_again("overwritten", self._held)
        self._read_elsewhere()
        self._look_for_changed()
        self._look_for_stale("the sync was over")
        self.stream.let_go()
        self.run.copies = self.ledger.copies
        self.run.exhausted, self.run.closed = self.stream.exhausted, self.stream.closed
        self.run.raised = self.stream.raised
        self._look_for_pinned()
        self._held.clear()
        handed_over = zip(self._watched, (each.facts.storage.nbytes for each in self.run.handed_over), strict=True)
        self.run.watched = [*handed_over, *self.ledger.births]

    def release(self) -> None:
        """Cut the cycles in which producer and ledger name their consumer, for a long search makes many of them."""
        del self.stream, self.ledger

    def _rewritten(self) -> Iterator[str]:
        """Shared memory, read through its address while those who share it still hold it."""
        for each in self.run.handed_over:
            if each.facts.device == "meta" or each.custody is not Custody.SHARED:
                continue
            if read(each.facts.span.start, each.facts.span.nbytes, torch.device(each.facts.device)) != each.facts.bits:
                yield "memory that is shared was written to"
                return

    def _look_for_pinned(self) -> None:
        """Find storages of hand-overs that live on, though the producer has let go and no bucket is made of them."""
        needed = {tensor.untyped_storage()._cdata for _, noted in self._held for _, tensor in noted}
        living = {i: ref for i, ref in enumerate(self._watched) if ref.cdata not in needed and alive(ref)}
        if living:
            gc.collect()  # what only a cycle held is not pinned
        given = self.run.handed_over
        self.run.pinned = {i: given[i].facts.storage.nbytes for i, ref in living.items() if alive(ref)}


def _shipment(device: str) -> Shipment:
    # Only now, for few runs need it.
    from bucketproof.properties.ranks.shipping import Shipment

    return Shipment(device)


def _is_as_noted(bucket: Any, noted: _Noted) -> bool:
    """Whether a bucket still has the members that it was yielded with, in their order."""
    try:
        now = pairs_of(bucket, 0)
    except Malformed:
        return False
    places = [(name, tensor.data_ptr()) for name, tensor in now]
    return places == [(delivered.name, tensor.data_ptr()) for delivered, tensor in noted]
