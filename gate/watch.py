"""What a process was judging when it died: the dead say nothing, so each says beforehand what it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Watch:
    """A folder that the workers of one run share.

    The cells of one campaign are judged on the same plans: where one has killed its process, the others would do
    the same, so they are not tried. And pytest-xdist hands the cell that a worker died of to the next one.
    """

    folder: Path
    worker: str

    @contextmanager
    def judging(self, campaign: str, cell: str) -> Iterator[None]:
        """Say what is being judged, for as long as it is."""
        note = self._running(self.worker)
        note.write_text(f"{campaign}\n{cell}", encoding="utf-8")
        try:
            yield
        finally:
            note.unlink()

    def victim(self, campaign: str) -> str | None:
        """The cell of the campaign that a process died of, if one did."""
        for note in sorted(self.folder.glob("died-*")):
            died_in, cell = note.read_text(encoding="utf-8").split("\n")
            if died_in == campaign:
                return cell
        return None

    def bury(self, worker: str) -> None:
        """Note that a worker died, before its work is given to another."""
        note = self._running(worker)
        if note.exists():
            note.rename(self.folder / f"died-{worker}")

    def _running(self, worker: str) -> Path:
        return self.folder / f"running-{worker}"
