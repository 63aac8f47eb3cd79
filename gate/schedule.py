"""Which worker judges what: whole campaigns, for their cells share their runs.

pytest-xdist has groups of tests, too (`--dist loadgroup`), but hands a test that a worker died of to the next worker;
and as of its version 3.8, pytest 9.2 does not let it see the groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, groupby
from typing import Protocol


class Node(Protocol):
    """A worker, as pytest-xdist knows it."""

    @property
    def shutting_down(self) -> bool: ...

    def send_runtest_some(self, indices: Sequence[int]) -> None: ...

    def shutdown(self) -> None: ...


class Schedule:
    """A scheduler for pytest-xdist.

    A campaign that has killed its worker is given up: its other cells would be judged on the same plans, and would
    die of them as well.
    """

    def __init__(self) -> None:
        self.lost: dict[str, str] = {}
        """Tests that will not run, each with the one that their worker died of."""
        self.campaigns: dict[str, str] = {}
        """The campaign of each test; `cuda/mixed` of one that is to be judged where all of that device are."""
        self._tests: list[str] | None = None
        self._waiting: deque[list[int]] = deque()
        self._given: dict[Node, list[int]] = {}
        self._ready: list[Node] = []

    @property
    def nodes(self) -> list[Node]:
        return list(self._given)

    @property
    def collection_is_completed(self) -> bool:
        return self._tests is not None

    @property
    def tests_finished(self) -> bool:
        return self.collection_is_completed and not self.has_pending

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting) or any(self._given.values())

    def add_node(self, node: Node) -> None:
        self._given[node] = []

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        if self._tests is None:
            self._tests = list(collection)
            self._waiting.extend(self._lots(range(len(collection))))
        if self._tests != list(collection):
            raise RuntimeError("two workers found different cells")
        self._ready.append(node)

    def schedule(self) -> None:
        for node in self._ready:
            self._feed(node)

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        self._given[node].remove(item_index)
        self._feed(node)

    def remove_node(self, node: Node) -> str | None:
        unfinished = self._given.pop(node)
        if node in self._ready:
            self._ready.remove(node)
        if not unfinished:
            return None
        deadly, *others = self._campaigns(unfinished)
        self.lost.update((self._test(index), self._test(deadly[0])) for index in deadly)
        self._waiting.extendleft(reversed(self._lots([*chain.from_iterable(others)])))
        self.schedule()
        return self._test(deadly[0])

    def _feed(self, node: Node) -> None:
        if node.shutting_down:
            return
        # A worker begins a test when it knows what comes next: another one, or nothing.
        while self._waiting and len(self._given[node]) < 2:
            campaign = self._waiting.popleft()
            self._given[node] += campaign
            node.send_runtest_some(campaign)
        if not self._waiting:
            node.shutdown()

    def _lots(self, tests: Sequence[int]) -> list[list[int]]:
        """What one worker judges: a campaign, or all that are of one device, of which each process needs a part."""
        campaigns = groupby(tests, lambda index: self.campaigns[self._test(index)].partition("/")[0])
        return [list(lot) for _, lot in campaigns]

    def _campaigns(self, tests: Sequence[int]) -> list[list[int]]:
        return [list(campaign) for _, campaign in groupby(tests, lambda index: self.campaigns[self._test(index)])]

    def _test(self, index: int) -> str:
        assert self._tests is not None
        return self._tests[index]
