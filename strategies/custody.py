"""Custody: who owns the memory of a hand-over. Known by construction, never found out by inspection."""

from __future__ import annotations

from enum import Enum


class Custody(str, Enum):
    """The ground truth about one hand-over, and with it what a bucketer must do."""

    OWNED = "owned"
    """The storage is exactly the tensor's bytes and nobody else holds it: keep it, if it is contiguous."""
    LENT = "lent"
    """A lender may overwrite it as soon as the producer is advanced: do not keep it."""
    PARTIAL = "partial"
    """Nobody writes it, but its storage is larger than the tensor: hold no byte beyond the tensor's own."""
    SHARED = "shared"
    """Someone else holds exactly the same bytes and will not write them: keep it or copy it."""
