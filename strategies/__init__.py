"""What can be handed over to a bucketer: plans, the strategies that draw them, and the streams that build them.

    from bucketproof.strategies import Stream, plans

    @given(plans(provenances=["detach", "fresh"]))
    def test_mine(plan):
        for name, tensor in Stream(plan).iterable():
            ...

Plans are frozen data and cheap to draw; a stream builds the weights, and lets go of each as it hands it over.
"""

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.devices import DEVICES
from bucketproof.strategies.draw import (
    UNIQUE_NAMES,
    budgets,
    dtypes,
    items,
    lenders,
    name_of,
    names,
    plans,
    shapes,
)
from bucketproof.strategies.dtypes import DTYPES
from bucketproof.strategies.exporters import EXPORTERS, weights
from bucketproof.strategies.groups import GROUPS, Group
from bucketproof.strategies.manifests import Manifest, Weight, manifest, manifests
from bucketproof.strategies.plans import Item, Lender, Plan
from bucketproof.strategies.provenances import CHAINS, LAYOUTS, PROVENANCES, Layout, Provenance
from bucketproof.strategies.stream import Stream, build

__all__ = [
    "CHAINS",
    "DEVICES",
    "DTYPES",
    "EXPORTERS",
    "GROUPS",
    "LAYOUTS",
    "PROVENANCES",
    "UNIQUE_NAMES",
    "Custody",
    "Group",
    "Item",
    "Layout",
    "Lender",
    "Manifest",
    "Plan",
    "Provenance",
    "Stream",
    "Weight",
    "budgets",
    "build",
    "dtypes",
    "items",
    "lenders",
    "manifest",
    "manifests",
    "name_of",
    "names",
    "plans",
    "shapes",
    "weights",
]
