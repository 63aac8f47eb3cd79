"""What was handed over and is not delivered yet, with what a bucketer may have allocated for it.

It is asked each time that a bucketer allocates, and a bucket can have thousands of items: no answer takes longer for
more of them.
"""

from __future__ import annotations

import heapq

from bucketproof.properties.promises import Promises
from bucketproof.properties.run import HandOver


class Pending:
    """The items that a bucketer has in its hands."""

    def __init__(self, promises: Promises) -> None:
        # What may be cast, or copied, need not be kept.
        self._always = promises.copies != "when-needed" or promises.dtype is None
        self._padding = promises.padding or 0
        self._items: dict[int, HandOver] = {}
        self._by_size: list[tuple[int, int]] = []
        self._first = self._count = 0
        self.owed = 0
        """Bytes that had to be copied for them."""

    def add(self, given: HandOver) -> None:
        """An item was handed over."""
        self._count += 1
        self._items[given.index] = given
        self.owed += self._cost(given)
        heapq.heappush(self._by_size, (-given.largest, given.index))

    def remove(self, index: int) -> None:
        """An item was delivered."""
        if given := self._items.pop(index, None):
            self.owed -= self._cost(given)

    @property
    def largest(self) -> int:
        """Bytes of the largest of them."""
        while self._by_size and self._by_size[0][1] not in self._items:
            heapq.heappop(self._by_size)
        return -self._by_size[0][0] if self._by_size else 0

    @property
    def first(self) -> int:
        """The number of the first of them, or of the next item where there is none."""
        while self._first < self._count and self._first not in self._items:
            self._first += 1
        return self._first

    def _cost(self, given: HandOver) -> int:
        is_owed = self._always or given.is_cast or not given.keep_owed
        return given.largest + self._padding if is_owed else 0
