"""Figures of a running command, which Prometheus asks for over HTTP (``--metrics-port``)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamvault.cli.progress import Phase
from streamvault.common.errors import Failed
from streamvault.common.progress import SERVERS, ForwardedProgress, Progress, RunningTasks, silent_seconds
from streamvault.inspect.metrics import Metric, text_of

METRICS: Mapping[str, tuple[str, str]] = {
    "started_timestamp_seconds": ("gauge", "When the command began, in seconds since 1970."),
    "bytes_total": ("counter", "Bytes acknowledged, in all phases."),
    "events_total": ("counter", "Events in the finished ranges, in all phases."),
    "warnings_total": ("counter", "Warnings that the command has written."),
    "moved_timestamp_seconds": ("gauge", "When bytes were last acknowledged, in seconds since 1970."),
    "phase_bytes": ("gauge", "Bytes of the current phases; 0 between phases."),
    "phase_bytes_done": ("gauge", "Acknowledged bytes of the current phases."),
    "silent_seconds": ("gauge", "How long a server has not answered; 0 if no request waits for it."),
}
"""The metrics of a command: name, without ``streamvault_run_``, → what kind it is, and what it says."""


class RunFigures:
    """The figures of a command. Several threads may report."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phases: list[Phase] = []
        self._began = self._moved = time.time()
        self._bytes = self._seen = self._events = self._warnings = 0

    def enter(self, phase: Phase | None, left: Phase | None) -> None:
        """Count a phase, if there is one, in place of another one."""
        with self._lock:
            self._phases = [*(one for one in self._phases if one is not left), *([phase] if phase else [])]

    def advance(self, phase: Phase | None, events: int, size: int) -> None:
        """Count what is reported of a phase's tasks that have ended."""
        with self._lock:
            if phase is not None:
                phase.advance(events, size)
            self._events += events
            self._bytes += size
            self._look()

    def warn(self) -> None:
        """Count a warning."""
        with self._lock:
            self._warnings += 1

    def metrics(self, verb: str) -> str:
        """Return the figures in the text format of Prometheus."""
        with self._lock:
            tasks = self._look()
            values = {
                "started_timestamp_seconds": self._began,
                "bytes_total": self._seen,
                "events_total": self._events,
                "warnings_total": self._warnings,
                "moved_timestamp_seconds": self._moved,
                "phase_bytes": sum(phase.total for phase in self._phases),
                "phase_bytes_done": sum(phase.look() for phase in self._phases),
            }
        samples: dict[str, list[tuple[dict[str, str], float]]] = {
            name: [({"verb": verb}, value)] for name, value in values.items()
        }
        samples["silent_seconds"] = [
            ({"verb": verb, "server": server.name}, round(silent_seconds(server, tasks), 3)) for server in SERVERS
        ]
        return text_of(
            Metric(f"streamvault_run_{name}", text, samples[name], kind) for name, (kind, text) in METRICS.items()
        )

    def _look(self) -> list[RunningTasks]:
        """Look how far running tasks are, and return them. A task that begins again takes nothing back."""
        tasks = [one for phase in self._phases for one in list(phase.tasks)]
        now = self._bytes + sum(one.acknowledged for one in tasks)
        if now > self._seen:
            self._seen, self._moved = now, time.time()
        return tasks


class MeasuredProgress(ForwardedProgress):
    """Counts what a command reports, and passes it on.

    Args:
        shown: the progress that it is passed on to.
        figures: where it is counted.
    """

    def __init__(self, shown: Progress, figures: RunFigures) -> None:
        super().__init__(shown)
        self._figures = figures
        self._phase: Phase | None = None

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """See `Progress.begin`."""
        self._enter(Phase(what, total_bytes, done_bytes))
        self._progress.begin(what, total_bytes, done_bytes)

    def advance(self, events: int, size: int) -> None:
        """See `Progress.advance`."""
        self._figures.advance(self._phase, events, size)
        self._progress.advance(events, size)

    @contextmanager
    def watch(self, tasks: RunningTasks) -> Iterator[None]:
        """See `Progress.watch`."""
        with nullcontext() if self._phase is None else self._phase.watch(tasks), self._progress.watch(tasks):
            yield

    def warn(self, text: str) -> None:
        """See `Progress.warn`."""
        self._figures.warn()
        self._progress.warn(text)

    def end(self) -> None:
        """See `Progress.end`."""
        self._enter(None)
        self._progress.end()

    def part(self, name: str) -> Progress:
        """See `Progress.part`."""
        return MeasuredProgress(self._progress.part(name), self._figures)

    def _enter(self, phase: Phase | None) -> None:
        self._figures.enter(phase, self._phase)
        self._phase = phase


@contextmanager
def answering(
    place: tuple[str, int],
    metrics: Callable[[], str],
    is_ready: Callable[[], bool] = lambda: True,
    status: Callable[[], dict[str, Any]] = dict,
) -> Iterator[int]:
    """Answer Prometheus' requests while the block runs, and, at ``/health`` and ``/ready``, probes.

    Args:
        place: host and port; port 0 for any.
        metrics: returns what to answer.
        is_ready: returns whether to answer ``/ready`` by 200, else by 503.
        status: returns what ``/status`` answers besides, as JSON; nothing if there is no such page.

    Yields:
        The port.

    Raises:
        Failed: the port is taken, or the host is not this machine's.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            code, text, kind = 404, "", "text/plain; version=0.0.4; charset=utf-8"
            if path in {"/", "/metrics"}:
                code, text = 200, metrics()
            elif path == "/health" or (path == "/ready" and is_ready()):
                code, text = 200, "ok\n"
            elif path == "/status" and (found := status()):
                code, kind = 200, "application/json"
                text = json.dumps({"ready": is_ready(), **found}, indent=2) + "\n"
            elif path in {"/ready", "/status"} and not is_ready():
                code, text = 503, "not ready\n"
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    try:
        server = ThreadingHTTPServer(place, Handler)
    except OSError as error:
        where, todo = f"{place[0]}:{place[1]}", "Choose another port with --metrics-port."
        raise Failed(f"cannot listen there ({error.strerror or error})", where=where, todo=todo) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
