"""How a hand-over can come to be: one small function for each provenance, one file for each family.

| file | family |
|---|---|
| `layouts.py` | views of the memory that a provenance starts from |
| `fresh.py` | tensors that own their memory because an operation has just made it |
| `views.py` | views that torch keeps track of |
| `hidden.py` | aliases that torch does not show |
| `gathered.py` | parameters that are empty until they are gathered |
| `foreign.py` | memory that is more than one process's |
| `files.py` | files, and what other processes have sent |
| `shared.py` | memory that someone holds and does not write |
| `chains.py` | two or three views in a row |
| `distributed.py` | what ranks of a process group gather and receive |
| `cuda.py` | what only a CUDA device has |
"""

# The order is the order of the matrix, and that in which a failing plan shrinks: layouts first, then the simplest.
from bucketproof.strategies.provenances import layouts  # noqa: F401, I001
from bucketproof.strategies.provenances import fresh, views, hidden, gathered, foreign, files  # noqa: F401
from bucketproof.strategies.provenances import shared, chains, distributed, cuda  # noqa: F401
from bucketproof.strategies.provenances.registry import (
    LAYOUTS,
    OPS,
    PROVENANCES,
    Domain,
    Layout,
    Provenance,
    layout,
    provenance,
    register,
    view,
)
from bucketproof.strategies.provenances.chains import CHAINS

__all__ = [
    "CHAINS",
    "LAYOUTS",
    "OPS",
    "PROVENANCES",
    "Domain",
    "Layout",
    "Provenance",
    "layout",
    "provenance",
    "register",
    "view",
]
