"""The contract: properties with stable ids, and the cells in which each is judged.

A property is one function `(run) -> problems`, whose docstring is the sentence. Registering it puts it in the matrix,
the lists and the tests.
"""

from __future__ import annotations

import builtins
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bucketproof.properties.campaigns import GROUPED, HOST_CAMPAIGNS, NEEDED, is_campaign
from bucketproof.properties.groups import SIZES
from bucketproof.properties.outcome import Level
from bucketproof.properties.promises import Promises
from bucketproof.properties.run import Run
from bucketproof.strategies import DEVICES, GROUPS, PROVENANCES, Custody
from bucketproof.strategies.devices import CPU, CUDA, exists_on


@dataclass(frozen=True)
class Problem:
    """A way in which a run broke a property."""

    what: str
    """What happened, in one line."""
    item: int | None = None
    """The hand-over it happened to, if it was to one."""


Judge = Callable[[Run], Iterator[Problem]]


@dataclass(frozen=True, eq=False)
class Property:
    """One sentence of the contract."""

    id: str
    sentence: str
    level: Level
    judge: Judge
    custodies: tuple[Custody, ...] = ()
    """Whose provenances it is judged for, one cell each."""
    campaigns: tuple[str, ...] = ()
    """What is drawn for other cells. Without custodies, the first of these bears the property's name alone."""
    hangs: bool = False
    """Whether it judges runs that did not end. They were cut short anywhere, and show nothing else."""
    needs: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """The promises that select it, with the values for which they do; no value stands for any."""
    group: str = ""
    """The group that it belongs to, if it is not judged in any case."""

    def unpromised(self, promises: Promises) -> str | None:
        """The promise that would have to be made for this to be judged, if one is missing."""
        if promises.scope and self.id.partition(".")[0] not in promises.scope:
            return f"the target answers for {', '.join(promises.scope)} alone"
        for name, values in self.needs.items():
            made = getattr(promises, name)
            if made in (None, ()) or (values and made not in values):
                return _promised(name, made)
        return None


def _promised(name: str, made: object) -> str:
    return f"the target promises nothing of {name}" if made in (None, ()) else f"the target promises {name}={made!r}"


@dataclass(frozen=True)
class Cell:
    """A property, judged on one kind of plans: one test."""

    property: Property
    campaign: str
    """What is drawn: a provenance's id, or the name of another kind of plans."""
    provenance: str | None = None
    """The provenance that is judged, if the property is judged for each."""
    device: str = CPU
    """Where its plans are run, by the id in `DEVICES`."""

    @builtins.property  # the field of that name hides it
    def id(self) -> str:
        """`aliasing.survives-overwrite[detach]`, `values.order[long-stream]`, or the property's id alone.

        On another device than the host, `aliasing.survives-overwrite[detach@cuda]`, and never the property's id alone.
        """
        is_alone = not self.property.custodies and self.campaign == self.property.campaigns[0]
        return self.property.id if is_alone and self.device == CPU else f"{self.property.id}[{self.kind}]"

    @builtins.property
    def kind(self) -> str:
        """What is in the brackets of its id: `detach`, or `detach@cuda` on another device than the host."""
        return self.campaign if self.device == CPU else f"{self.campaign}@{self.device}"

    def unpromised(self, promises: Promises) -> str | None:
        """The promise that would have to be made for this to be judged, if one is missing."""
        needed = NEEDED.get(self.campaign, "")
        missing = needed and getattr(promises, needed) in (None, ())
        return _promised(needed, ()) if missing else self.property.unpromised(promises)

    @builtins.property
    def groups(self) -> frozenset[str]:
        """The groups that have to be asked for: its property's, its plans', its provenance's and its device's."""
        provenance = PROVENANCES[self.provenance].group if self.provenance else ""
        device = "" if self.device == CPU else self.device
        return frozenset({self.property.group, GROUPED.get(self.campaign, ""), provenance, device} - {""})

    @builtins.property
    def sizes(self) -> tuple[int, ...]:
        """How many ranks its plans are run on; none if they are run here."""
        return next((SIZES[group] for group in sorted(self.groups) if group in SIZES), ())

    def missing(self) -> str:
        """What this machine lacks for it, in one line; nothing if it can be judged here."""
        return next((lack for group in sorted(self.groups) if (lack := GROUPS[group].missing())), "")

    @builtins.property
    def level(self) -> Level:
        """Whether it must hold."""
        return self.property.level

    def problems(self, run: Run) -> list[Problem]:
        """What of a run broke the property in this cell: what befell items of its provenance, or the whole run."""
        if run.hung and not self.property.hangs:
            return []
        return [each for each in self.property.judge(run) if self._concerns(run, each)]

    def _concerns(self, run: Run, problem: Problem) -> bool:
        if self.provenance is None or problem.item is None:
            return True
        return run.plan.items[problem.item].provenance == self.provenance


PROPERTIES: dict[str, Property] = {}
"""Every sentence of the contract, by its id, in the order of the matrix."""

ANY_CUSTODY = tuple(Custody)


def contract(
    id: str,
    *,
    level: Level = "MUST",
    custodies: Iterable[Custody] = (),
    campaigns: Iterable[str] | None = None,
    hangs: bool = False,
    needs: Mapping[str, tuple[object, ...]] | None = None,
    group: str = "",
) -> Callable[[Judge], Judge]:
    """Register a property. Its sentence is the first line of the function's docstring.

    Without custodies and campaigns, it is judged on mixed plans. Raises ValueError if the id is taken or none, if a
    campaign is none, or if there is no docstring.
    """
    kinds = tuple(campaigns) if campaigns is not None else () if custodies else ("mixed",)

    def add(judge: Judge) -> Judge:
        sentence = (judge.__doc__ or "").strip().split("\n")[0]
        _check(id, sentence, kinds, judge)
        PROPERTIES[id] = Property(id, sentence, level, judge, tuple(custodies), kinds, hangs, needs or {}, group)
        return judge

    return add


def _check(id: str, sentence: str, campaigns: Iterable[str], judge: Judge) -> None:
    """Raise ValueError for what would go wrong later, and elsewhere."""
    if not re.fullmatch(r"[\w-]+\.[\w-]+", id):
        raise ValueError(f"property {id!r}: an id is a family, a dot and a name")
    if not sentence:
        raise ValueError(f"property {id!r} has no docstring; its first line is the sentence of the contract")
    for campaign in campaigns:
        if not is_campaign(campaign):
            raise ValueError(f"property {id!r}: there is no campaign {campaign!r}")
    if other := PROPERTIES.get(id):
        places = f"{other.judge.__module__} and {judge.__module__}"
        raise ValueError(f"property {id!r} is registered twice, in {places}; give one of them another id")


def cells(groups: Iterable[str] = ()) -> tuple[Cell, ...]:
    """All cells that are of no group, and those of these groups. Those that share their runs stand side by side."""
    asked = frozenset(groups)
    every = itertools.chain.from_iterable(_on(device) for device in DEVICES if device in (CPU, *asked))
    return tuple(sorted((each for each in every if each.groups <= asked), key=lambda cell: sorted(cell.groups)))


def _on(device: str) -> Iterator[Cell]:
    """The cells of all groups on a device."""
    properties = [
        each for each in PROPERTIES.values() if (each.group != CUDA if device == CPU else each.group in ("", device))
    ]
    others = (
        Cell(prop, each, device=device)
        for prop in properties
        for each in prop.campaigns
        if device == CPU or each not in HOST_CAMPAIGNS
    )
    yield from sorted(others, key=lambda cell: cell.campaign)
    for provenance in PROVENANCES.values():
        if exists_on(provenance, device):
            for prop in properties:
                if provenance.custody in prop.custodies:
                    yield Cell(prop, provenance.id, provenance.id, device)
