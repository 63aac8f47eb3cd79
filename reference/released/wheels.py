"""Published wheels, fetched once into a cache and read in memory: nothing is installed, unpacked or built."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import decode_source
from pathlib import Path, PurePosixPath
from types import MappingProxyType

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", re.ASCII)
_OFFLINE = re.compile(r"Retrying|ConnectionPool|Connection\w*Error|ProxyError|SSLError|timed out")
_ADDRESS = re.compile(r"\w+://\S+|host='[^']*'")
_PIP_SECONDS = 600
_NO_RELEASES: Mapping[str, str] = MappingProxyType({})


class Unavailable(RuntimeError):
    """A released bucketer cannot be had; the message is one line that says why and how to mend it."""


@dataclass(frozen=True)
class Wheel:
    """A wheel in the cache. ``sha256`` is the hex digest of the whole file."""

    path: Path
    version: str
    sha256: str

    def read(self, member: str) -> str:
        """The source text of one member. ``Unavailable`` where it is missing or damaged."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                if strays := [name for name in archive.namelist() if _strays(name)]:
                    raise Unavailable(
                        f"{self.path.name} has a member outside of its folder, {strays[0]!r}: it is not used"
                    )
                return decode_source(archive.read(member))
        except Unavailable:
            raise
        except KeyError:
            raise Unavailable(f"{self.path.name} has no {member}: this release moved or dropped it") from None
        # which of many exceptions tells of damage depends on the bytes that were hit
        except Exception as error:
            told = f"{member} cannot be read ({one_line(error)})"
            raise Unavailable(f"{told}: delete {self.path} and try again") from error


def _strays(member: str) -> bool:
    """Whether a member would lie outside of the folder that an archive is unpacked into."""
    path = PurePosixPath(member.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or bool(re.match("[A-Za-z]:", member))


def default_cache() -> Path:
    """``$BUCKETPROOF_CACHE``, else ``bucketproof`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    try:
        if chosen := os.environ.get("BUCKETPROOF_CACHE"):
            return Path(chosen).expanduser().absolute()
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # a relative XDG_CACHE_HOME must be ignored, says the XDG specification
        return (shared if shared.is_absolute() else Path("~/.cache").expanduser()) / "bucketproof"
    except RuntimeError:
        raise Unavailable("this user has no home folder: set BUCKETPROOF_CACHE to a folder") from None


def fetch(
    project: str,
    version: str,
    cache: Path | str | None = None,
    *,
    releases: Mapping[str, str] = _NO_RELEASES,
) -> Wheel:
    """The published wheel of ``project``, from ``cache`` (default: ``default_cache()``) or the package index.

    ``releases`` maps the versions that the caller knows to the SHA-256 of their wheels: a file with another
    digest is never used. Raises ``Unavailable``.
    """
    spec = f"{project}@{version}"
    if not (_NAME.fullmatch(project) and _VERSION.fullmatch(version)):
        raise Unavailable(f"{spec!r} is no project@version such as verl@0.9.1")
    home = (default_cache() if cache is None else Path(cache)) / project / version
    pinned = releases.get(version)
    if held := _held(home, version, pinned):
        return held
    try:
        return _download(spec, home, pinned, tuple(releases))
    except OSError as error:
        raise Unavailable(
            f"{spec}: cannot write to the cache {home.parent.parent} ({_reason(error)}): "
            "set BUCKETPROOF_CACHE to a folder that can be written"
        ) from error


def _held(home: Path, version: str, pinned: str | None) -> Wheel | None:
    """The sound wheel in the cache, if any; a damaged one counts as absent and is fetched again."""
    for path in sorted(home.glob("*.whl")):
        if not (path.is_file() and os.access(path, os.R_OK) and zipfile.is_zipfile(path)):
            continue
        wheel = Wheel(path, version, _digest(path))
        if pinned in (None, wheel.sha256):
            return wheel
    return None


def _download(spec: str, home: Path, pinned: str | None, known: tuple[str, ...]) -> Wheel:
    root = home.parent.parent
    root.mkdir(parents=True, exist_ok=True)
    # inside the cache, so that the rename is atomic and a killed download never looks complete
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch:
        _pip(spec, home, Path(scratch), known)
        fresh = _held(Path(scratch), home.name, pinned)
        if fresh is None:
            raise Unavailable(_unsound(spec, Path(scratch), pinned))
        home.mkdir(parents=True, exist_ok=True)
        kept = fresh.path.replace(home / fresh.path.name)
    return Wheel(kept, fresh.version, fresh.sha256)


def _unsound(spec: str, scratch: Path, pinned: str | None) -> str:
    digests = ", ".join(_digest(path) for path in scratch.glob("*.whl")) or "none"
    wanted = f"the released wheel (its SHA-256 is {digests}, not {pinned})" if pinned else "a readable wheel"
    return f"{spec}: the package index did not serve {wanted}: check which index pip is set to use"


def _pip(spec: str, home: Path, into: Path, known: tuple[str, ...]) -> None:
    command = [sys.executable or "python", "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
    # one source file is read and nothing installed: which Python the whole wheel asks for is beside the point
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", str(into)]
    command.append(spec.replace("@", "=="))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{spec}: pip took over {_PIP_SECONDS} s: put the wheel into {home}") from None
    except OSError as error:
        raise Unavailable(f"{spec}: pip does not start ({_reason(error)}): put the wheel into {home}") from error
    if done.returncode != 0:
        raise Unavailable(f"{spec}: {_boiled(done.stderr + done.stdout, home, known)}{_spoilt(home)}")


def _boiled(output: str, home: Path, known: tuple[str, ...]) -> str:
    """What pip's many lines come to, in one, without the address (and perhaps password) of an index."""
    if "No module named pip" in output:
        return f"this Python has no pip: run {sys.executable} -m ensurepip, or put the wheel into {home}"
    listed = re.search(r"\(from versions: (.*?)\)", output)
    if listed and listed[1] != "none":
        choice = ", ".join(known) or ", ".join(listed[1].split(", ")[-5:])
        return f"the package index has no wheel of this version: choose another, such as {choice}"
    if listed or _OFFLINE.search(output):
        return f"the package index cannot be reached (offline?): go online once, or put the wheel into {home}"
    return f"pip failed: {_ADDRESS.sub('the package index', _last_words(output))}"


def _spoilt(home: Path) -> str:
    """Why a wheel that lies in the cache did not spare the download."""
    lying = ", ".join(str(path) for path in sorted(home.glob("*.whl")))
    return f" (unreadable, damaged or not the released file: {lying})" if lying else ""


def _last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line[7:] for line in lines if line.startswith("ERROR: ") and line != "ERROR: Exception:"]
    return (errors or lines or ["it said nothing"])[-1]


def one_line(error: Exception) -> str:
    """The exception's type and message, without the line breaks that some messages have."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _digest(path: Path) -> str:
    seen = path.stat()
    return _digest_of(path, seen.st_mtime_ns, seen.st_size, seen.st_ino)


@lru_cache(maxsize=64)
def _digest_of(path: Path, *state: int) -> str:
    """Read once for each state of the file: some wheels are hundreds of MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
