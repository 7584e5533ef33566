"""The *doctor* command."""

from __future__ import annotations

import logging
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version

from streamvault.common.errors import Failed, Problem
from streamvault.common.options import verb
from streamvault.common.units import now_utc
from streamvault.inspect.reports import DoctorOptions, SetupCheck, SetupReport
from streamvault.objectstore.probe import ProbedServer, probe_folder, probe_server
from streamvault.objectstore.store import ObjectStore, ObjectStoreUnavailable
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.java import java_home, java_version
from streamvault.runner.runner import Master, NoJava
from streamvault.streamstore.errors import NoSuchStream, StreamStoreUnavailable
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import StoreAddress, parse_stream

SPARK = ((4, 0), (4, 4))
"""The oldest version of Spark that Streamvault runs with, and the first that is too new, as in pyproject.toml."""

OF_LIMIT = 0.6
"""The share of the time limit that a server may be silent: its own error says more than that the time is over."""

RETRY_SECONDS = 1.0

GRACE_SECONDS = 1.0
"""How long to wait for the probe objects to be deleted when the checks were interrupted or took too long."""

MOST_SKEW = timedelta(minutes=1)
"""S3 rejects requests at 15 minutes; ages and times in reports are wrong long before."""

_log = logging.getLogger(__name__)


@verb(DoctorOptions)
def check_setup(stream: str, root: str | None, options: DoctorOptions) -> SetupReport:
    """Check whether a stream can be archived to a root from this machine. Changes nothing.

    Writes, lists and deletes a few empty probe objects in the archive's folder for unfinished work, with names that no
    archive uses.

    Args:
        stream: ``pravega://HOST:PORT/SCOPE/STREAM`` or ``local:///FOLDER/SCOPE/STREAM``.
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``; None to leave the object store out.
        time_limit: seconds that all checks may take together.

    Raises:
        Usage: the stream's or the root's URI is invalid. All else that is wrong is in the report.
    """
    address, name = parse_stream(stream)
    place = RootAddress.parse(root) if root is not None else None
    silence = options.time_limit * OF_LIMIT
    probing = _RootChecks(place, f"{name}/", silence)
    chains = [_Chain(_stream_checks(address, name, silence)), _Chain(probing.checks()), _Chain(_MACHINE)]
    ends = time.monotonic() + options.time_limit
    try:
        found = tuple(result for chain in chains for result in chain.results(ends, options.time_limit))
    except BaseException:
        for warning in probing.stop(chains[1]):
            _log.warning("%s", warning)
        raise
    return SetupReport(
        passed=all(one.verdict != "failed" for one in found), setup=found, warnings=probing.stop(chains[1])
    )


class _NotChecked(Exception):
    """There is nothing to check."""


@dataclass(frozen=True, slots=True)
class _Check:
    """A check.

    Attributes:
        name: what it checks.
        run: returns what was found; raises a Problem, or `_NotChecked`.
        needed: whether those behind it cannot be made if it fails.
    """

    name: str
    run: Callable[[], str]
    needed: bool = False


class _Chain:
    """Checks that are made one after the other, in a thread that is abandoned if it hangs."""

    def __init__(self, checks: Sequence[_Check]) -> None:
        self._checks = [(check, Future[SetupCheck]()) for check in checks]
        # no pool: the end of the process would wait for its threads
        self._thread = threading.Thread(target=self._run, name="check", daemon=True)
        self._thread.start()

    def results(self, ends: float, limit: float) -> Iterator[SetupCheck]:
        """Yield what was found by each check; the one that has not ended in time has failed."""
        reason = ""
        for check, future in self._checks:
            if reason:
                yield SetupCheck(name=check.name, verdict="not checked", found=reason)
                continue
            wait([future], timeout=max(0.0, ends - time.monotonic()))
            if future.done():
                result = future.result()
            else:
                todo = "Check that the server is running and not overloaded, or allow more time with --time-limit."
                result = SetupCheck(name=check.name, verdict="failed", found=f"no answer within {limit:g} s", todo=todo)
                reason = f"{check.name} has not answered"
            if check.needed and result.verdict == "failed":
                reason = reason or f"{check.name} failed"
            yield result

    def has_ended(self, seconds: float) -> bool:
        """Wait for the thread for so long; return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        for check, future in self._checks:
            try:
                result = SetupCheck(name=check.name, verdict="ok", found=check.run())
            except _NotChecked as reason:
                result = SetupCheck(name=check.name, verdict="not checked", found=str(reason))
            except Problem as problem:
                found = f"{problem.what}: {problem.where}" if problem.where else problem.what
                result = SetupCheck(name=check.name, verdict="failed", found=found, todo=problem.todo)
            except Exception as error:  # noqa: BLE001  (a bug, for the thread that waits)
                future.set_exception(error)
                return
            future.set_result(result)
            if check.needed and result.verdict == "failed":
                return


def _stream_checks(address: StoreAddress, name: StreamName, silence: float) -> list[_Check]:
    limited = address.limited(silence)

    def controller() -> str:
        if not (found := address.reach(silence)):
            raise _NotChecked("the streams are in a folder")
        return found

    def stream() -> str:
        with limited.open() as store:
            try:
                exists = store.exists(name)
            except StreamStoreUnavailable as error:  # although its port was reached
                todo = (
                    "Check that it is the controller's gRPC port, 9090 by default, and that the controller is healthy."
                )
                raise StreamStoreUnavailable(error.what, where=error.where, todo=todo) from None
            if not exists:
                raise NoSuchStream("no such stream", where=f"{address}/{name}", todo="Check the scope and the name.")
        return f"{name} exists and is readable"

    def segments() -> str:
        with limited.open() as store:
            return f"the tail was read; open segments: {len(store.describe(name).tail.offsets):,}"

    return [
        _Check("controller", controller, needed=True),
        _Check("stream", stream, needed=True),
        _Check("segment stores", segments),
    ]


class _RootChecks:
    """The checks of a root, by one probe.

    Args:
        place: the root; None for none.
        prefix: the archive's folder below it.
        silence: seconds that the server may be silent.
    """

    def __init__(self, place: RootAddress | None, prefix: str, silence: float) -> None:
        self._place, self._prefix, self._silence = place, prefix, silence
        self._folder = probe_folder(prefix)
        self._stopped = threading.Event()
        self._began = now_utc()
        self._probed: ProbedServer | None = None
        self._is_probing = False

    def checks(self) -> list[_Check]:
        """Return the checks, in their order."""
        return [
            _Check("root", self._list, needed=True),
            _Check("writes", self._probe, needed=True),
            _Check("create-only", self._creates_only),
            _Check("listing order", self._is_ordered),
            _Check("clock", self._clock),
        ]

    def stop(self, chain: _Chain) -> tuple[str, ...]:
        """End the probe, and return a warning if its objects remain or may remain."""
        self._stopped.set()
        if self._place is None:
            return ()
        # a probe that begins only now writes nothing
        ended = not self._is_probing or chain.has_ended(GRACE_SECONDS)
        where = f"{self._place.uri}/{self._folder}"
        if self._is_probing:
            why = "the probe was not finished" if ended else "the server has not answered yet"
            return (f"{why}: empty objects may remain below {where}",)
        if self._probed is not None and not self._probed.deletes:
            return (f"deletion is not allowed: empty objects remain below {where}",)
        return ()

    def _open(self) -> ObjectStore:
        if self._place is None:
            raise _NotChecked("no ROOT was given")
        return self._place.open(retry_seconds=RETRY_SECONDS, timeout_seconds=self._silence)

    def _list(self) -> str:
        next(iter(self._open().list(self._prefix)), None)
        return f"{self._place} can be listed"

    def _probe(self) -> str:
        store = self._open()
        self._began, self._is_probing = now_utc(), True
        try:
            self._probed = probe_server(store, self._folder, clock=True, go_on=self._go_on)
        except ObjectStoreUnavailable:
            raise  # nothing was deleted
        except BaseException:
            self._is_probing = False
            raise
        self._is_probing = False
        return f"probe objects were written{' and deleted' if self._probed.deletes else ', but may not be deleted'}"

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise _NotChecked("interrupted")

    def _found(self) -> ProbedServer:
        if self._probed is None:
            raise _NotChecked("no ROOT was given")
        return self._probed

    def _creates_only(self) -> str:
        if not self._found().creates_only:
            todo = "Use another server, or never run two exports of a stream at once, or two handoffs."
            raise Failed("the server ignores If-None-Match and overwrites objects", todo=todo)
        return "a second object with the same key is refused"

    def _is_ordered(self) -> str:
        if not self._found().is_ordered:
            todo = "It cannot hold an archive; use another server."
            raise Failed("the server does not list keys in byte order", todo=todo)
        return "keys are listed in byte order"

    def _clock(self) -> str:
        written = self._found().written
        if written is None:
            raise _NotChecked("the root has no clock other than this machine's")
        # the server's time may be cut to whole seconds
        behind, ahead = self._began - timedelta(seconds=1) - written, written - now_utc()
        if (skew := max(behind, ahead)) > MOST_SKEW:
            what = f"this machine's clock is {'ahead of' if skew == behind else 'behind'} the server's"
            raise Failed(f"{what} by {skew.total_seconds():,.0f} s", todo="Set it, for example with NTP.")
        return f"it differs from the server's by less than {MOST_SKEW.total_seconds():.0f} s"


def _spark() -> str:
    oldest, too_new = ("{}.{}".format(*one) for one in SPARK)
    todo = f"Run pip install 'pyspark>={oldest},<{too_new}', or use --master inline."
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise Failed("pyspark is not installed", todo=todo) from None
    if not SPARK[0] <= tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < SPARK[1]:
        raise Failed(f"pyspark {found} is not supported", todo=todo)
    return f"pyspark {found}"


def _java() -> str:
    try:
        home = java_home()
    except NoJava as problem:
        master = Master.parse("auto")
        if master.kind == "inline" or master.is_auto:
            raise _NotChecked(f"{problem.what}; only Spark needs one, and commands run without it") from None
        raise
    if not (found := java_version(home)):
        raise Failed("the Java runtime does not start", where=str(home), todo="Set JAVA_HOME to another one.")
    return f"Java {found}: {home}"


_MACHINE = (
    _Check("Python", platform.python_version),
    _Check("Spark", _spark),
    _Check("Java", _java),
)
