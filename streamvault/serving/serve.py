"""The *serve* command."""

from __future__ import annotations

import logging
import math
import re
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import cast

from streamvault.common.errors import Absent, Damaged, Usage
from streamvault.common.options import load_file, verb
from streamvault.common.processes import give_back_large_buffers
from streamvault.serving.access import Access
from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import BlockCache
from streamvault.serving.figures import ServerFigures
from streamvault.serving.live import LiveAddress, LiveStream
from streamvault.serving.reports import ServeArguments, ServeReport
from streamvault.serving.root import open_groups
from streamvault.serving.segments import MOST_CONNECTIONS
from streamvault.serving.server import Certificate, listening
from streamvault.streamstore.pravega.store import PravegaStore

_log = logging.getLogger(__name__)

OPEN_FILES = 2 * MOST_CONNECTIONS + 500
"""Files that may have to be open at once: each client has a connection to the controller, too."""

LOOK_SECONDS = 0.2
"""How often to look whether the server was interrupted."""


@verb(ServeArguments)
def serve_archives(sources: Sequence[str], options: ServeArguments) -> ServeReport:
    """Serve archives to Pravega's clients, as if they were the streams, until interrupted.

    Readers need nothing but the address. Every byte is compared with its digest before it is sent. Reader groups are
    kept below ``state``, which several servers may share; without it in memory, and they end with the server.

    Args:
        sources: the archives, each ``ROOT/SCOPE/STREAM``, or ``ROOT/SCOPE/`` or a pattern for several.
        over: a stream, ``pravega://HOST:PORT/SCOPE/STREAM``, which the one archive is of. Both are served as one
            stream, read from the archive where the cluster has truncated it. The cluster has the reader groups, and
            says who may read.
        state: a root for the states of reader groups; None to keep them in memory.
        listen: where the controller listens; the segment store has the next port.
        advertise: the host that readers are told to connect to; empty for that of ``listen``.
        cache: memory (bytes) for what is fetched, held and sent, besides the process's own.
        every: how often to look for new generations (seconds).
        generation: serve the stream as it was at this generation; None to follow the archive.
        verify: ``blocks``, or ``sha256`` to read each range whole and compare its SHA-256 before its first byte is
            sent, also where the archive has checksums of blocks.
        lasting: stop after this many seconds; None: when interrupted.
        tls_cert: speak TLS with this certificate (PEM); needs ``tls_key``.
        tls_key: the certificate's key (PEM).
        login: a file with ``USER:PASSWORD``, which readers must give; None for no login.
        token_lifetime: how long a token for the segment store holds (seconds).
        ready: receives the report when the server answers.
        answering: is given what returns the metrics (the text format of Prometheus) when called, and by its method
            `status` how the server is doing; its result lasts while the server answers.

    Returns:
        What was served, at the end.

    Raises:
        NoSuchArchive: an archive does not exist.
        Damaged: an archive's manifests are not valid. Of a scope or a pattern, the others are served, with a warning.
        Usage: two archives are of the same stream, or an option is not valid.
        Failed: the server cannot listen there, or the states cannot be kept there.
    """
    host, port = _place(options.listen)
    if (options.tls_cert is None) != (options.tls_key is None):
        raise Usage("a certificate needs its key", todo="Give both --tls-cert and --tls-key.")
    certificate = Certificate(options.tls_cert, options.tls_key) if options.tls_cert and options.tls_key else None
    login = "" if options.login is None else load_file(str(options.login), "--login").strip()
    if options.login is not None and not re.fullmatch("[^:\n]+:.*", login):
        raise Usage("the file is not one line USER:PASSWORD", where=f"--login {options.login}")
    check_advertised(options.advertise, host)
    give_back_large_buffers()  # before there are threads, which get heaps of their own
    _allow_files()
    with ExitStack() as stack:
        cache = BlockCache(options.cache)
        stack.callback(cache.close)
        whole = options.verify == "sha256"
        found = _opened(sources, lambda uri: ServedArchive(uri, cache, options.generation, whole=whole))
        served = {one.name: one for one in found}
        if len(served) != len(found):
            twice = next(one for one in found if served[one.name] is not one)
            raise Usage("two archives are of the same stream", where=f"{twice.uri}, {served[twice.name].uri}")
        live = None if options.over is None else _live(options, options.over, found, cache, stack)
        state, limit = options.state, cache.state_bytes
        groups = None if state is None else open_groups(state, limit, [one.uri for one in found])
        access = Access(login, options.token_lifetime)
        server = stack.enter_context(
            listening(
                served,
                cache,
                (host, port),
                groups=groups,
                access=access,
                certificate=certificate,
                advertised=options.advertise,
                every=options.every,
                live=live,
            )
        )
        report = ServeReport(uri=server.uri, served=tuple(sorted(map(str, served))))
        figures = ServerFigures(server.segments, cache, found, live)
        with suppress(KeyboardInterrupt), options.answering(figures):
            options.ready(report)
            _wait(options.lasting)
        return replace(
            report,
            sent_bytes=server.segments.sent,
            ranges_read=sum(one.learned for one in found),
            request_counts=dict(sorted(server.segments.counts.items())),
        )


def _allow_files() -> None:
    """Raise the limit of open files, as far as allowed: one of 1,024 is usual, and each client has two connections."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, most) if most >= 0 else OPEN_FILES  # negative: any number
    if 0 <= now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    if wanted < OPEN_FILES:
        what = (
            "only %d files may be open, too few for %d connections of clients: raise the hard limit (ulimit -Hn) to %d"
        )
        _log.warning(what, wanted, MOST_CONNECTIONS, OPEN_FILES)


def _wait(seconds: float | None) -> None:
    """Wait until interrupted, or for so long."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        # a signal that another thread receives does not wake this one
        time.sleep(min(left, LOOK_SECONDS))


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < (1 << 16) - 1):
        raise Usage("--listen is not valid: not PORT or HOST:PORT", where=repr(text))
    return host.strip("[]") or "127.0.0.1", int(port)


def check_advertised(advertised: str, host: str) -> None:
    """Check the host that readers are told; warn if other machines would connect to themselves.

    Raises:
        Usage: it is not a host.
    """
    if "/" in advertised or (":" in advertised and not _is_address(advertised)):
        raise Usage("--advertise is not a host", where=repr(advertised), todo="Give it without a scheme and a port.")
    if not advertised and _is_address(host) and ip_address(host).is_unspecified:
        _log.warning("readers are told to connect to %s, which is their own machine: give --advertise HOST", host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _live(
    options: ServeArguments, over: str, found: Sequence[ServedArchive], cache: BlockCache, stack: ExitStack
) -> LiveStream:
    """Open the stream that goes on where an archive ends.

    Raises:
        Usage: there are several archives, or an option that is not for a live stream.
        Conflict: as `LiveStream`.
    """
    if len(found) != 1:
        raise Usage("--over requires exactly one archive", todo="Serve the others in separate processes.")
    needless = {"--state": options.state, "--login": options.login, "--generation": options.generation}
    if given := [name for name, value in needless.items() if value is not None]:
        what = "the cluster has the reader groups and the logins, and the archive is needed up to its end"
        raise Usage(f"--over cannot be used with {' and '.join(given)}: {what}", todo="Omit them.")
    address = LiveAddress.parse(over)
    store = stack.enter_context(address.store.open())
    return LiveStream(address, cast("PravegaStore", store), found[0], cache)


def _opened(sources: Sequence[str], open_: Callable[[str], ServedArchive]) -> list[ServedArchive]:
    """Open the archives; of a scope or a pattern, those that there are, without damaged ones if others are left."""
    from streamvault.scopes.calls import members_of  # noqa: PLC0415  (imports the engines, which few need)
    from streamvault.scopes.uri import ScopePattern, is_scope  # noqa: PLC0415

    found: dict[str, ServedArchive] = {}
    damaged: list[Damaged] = []
    for source in sources:
        if not is_scope(source):
            found[source] = found.get(source) or open_(source)
            continue
        pattern = ScopePattern.parse(source)
        names = members_of(pattern, "archive").look().names
        if not names:
            raise Absent("no archives match", where=source, todo="'streamvault ls ROOT' lists the archives.")
        for uri in map(pattern.member, names):
            try:
                found[uri] = found.get(uri) or open_(uri)
            except Damaged as problem:
                damaged.append(problem)
    for one in damaged if found else ():
        _log.warning("not served: %s", one)
    if damaged and not found:
        raise damaged[0]
    return list(found.values())
