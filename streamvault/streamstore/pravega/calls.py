"""Calls of the controller: gRPC channel, login, retries, and the errors if it does not answer."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
from tenacity import stop_after_delay

from streamvault.common.progress import PRAVEGA
from streamvault.common.waiting import attempts, pauses
from streamvault.streamstore.errors import (
    AccessDenied,
    RequestFailed,
    StreamStoreError,
    StreamStoreUnavailable,
    WireError,
)
from streamvault.streamstore.pravega.connection import PravegaSettings, not_trusted, reach
from streamvault.streamstore.pravega.controller_pb2_grpc import ControllerServiceStub

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

FIRST_LOOK = 0.02
LONGEST_LOOK = 0.5


def unavailable(what: str, address: str, seconds: float) -> StreamStoreUnavailable:
    """Build the error for a server at ``HOST:PORT`` that could not be reached for some seconds."""
    return StreamStoreUnavailable(
        what,
        where=address,
        todo=f"Tried for {seconds:.0f} s; check that Pravega is running there and can be reached from this machine.",
    )


def looks(seconds: float) -> Iterator[float]:
    """Yield when to look whether the controller has finished something: at once, then after growing pauses."""
    return pauses(seconds, first=FIRST_LOOK, longest=LONGEST_LOOK)


class Patience:
    """Counts the time since the last progress and pauses between attempts.

    Args:
        total: seconds without progress after which `pause` gives up.
    """

    def __init__(self, total: float) -> None:
        self._total = total
        self.progress()

    def progress(self) -> None:
        """Record progress: restart the count."""
        self._pauses = pauses(self._total, first=FIRST_PAUSE, longest=LONGEST_PAUSE, jitter=True, at_once=False)

    def pause(self, what: str, address: str) -> None:
        """Wait a little before the next attempt, longer each time.

        Raises:
            StreamStoreUnavailable: the time is over.
        """
        PRAVEGA.failed()
        if next(self._pauses, None) is None:
            raise unavailable(what, address, self._total)


LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
"""Some 700,000 segments of one epoch."""

LOOK_SECONDS = 1.0

REACH_SECONDS = 2.0
"""How long a server may be silent that is asked whether it speaks TLS."""

_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# A stream that is still being created, or a controller that has lost its session with ZooKeeper. Java's client retries
# these, too (ControllerImpl.createRetryConfig), and UNKNOWN, which is what an unacceptable lease of a transaction gets.
_PASSING = (grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED)
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_NEEDED = {"getEpochSegments": "Reading a stream's epochs requires READ_UPDATE on it."}
_HINTS = (
    ("andshake failed", "the TLS handshake with Pravega's controller failed"),
    ("errors resolving", "the host name of Pravega's controller does not resolve"),
)
_NO_SUCH_HOST = "Domain name not found"
_NOT_TRUSTED = ("CERTIFICATE_VERIFY_FAILED", "ostname Verification", "not in peer certificate")


class NotFound(Exception):
    """The controller answered NOT_FOUND."""


class ControllerCalls:
    """Calls the controller's methods by name, with retries and jitter while it is unreachable or fails. Thread-safe."""

    def __init__(self, settings: PravegaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._closed = False
        self._has_answered = self._was_reached = False
        self._metadata: list[tuple[str, str]] = []
        if settings.username:
            login = base64.b64encode(settings.login().encode()).decode()
            self._metadata = [("authorization", f"Basic {login}")]

    def call(
        self, method: str, request: Any, *, seconds: float | None = None, done: Callable[[], bool] | None = None
    ) -> Any:
        """Make one call and return its response.

        Args:
            method: its name in controller.proto.
            request: its message.
            seconds: how long the controller may take to answer; None for the settings' timeout.
            done: checked every second; once true, the call is cancelled and returns None.

        Raises:
            NotFound: the controller answers NOT_FOUND.
            StreamStoreError: it speaks TLS and the URI does not say so, or the other way round, and has never answered.
            StreamStoreUnavailable: it could not be reached for the settings' timeout, or there is no host of its name
                and it has never answered.
            AccessDenied: the login is rejected or lacks permission, or the certificate is not trusted.
            RequestFailed: it failed for the settings' timeout.
        """
        limit = self._settings.timeout
        retrying = attempts(self._is_retried, stop_after_delay(limit), first=0.1, longest=2)
        try:
            with PRAVEGA:
                return retrying(lambda: self._ask(method, request, seconds or limit, done))
        except (grpc.RpcError, OSError) as error:
            if isinstance(error, grpc.RpcError) and not _is_lost(error):
                raise self._problem(method, error) from None
            details = (error.details() or "") if isinstance(error, grpc.RpcError) else ""
            if _NO_SUCH_HOST in details and not self._has_answered:
                what, todo = "there is no host with this name", "Check the name of Pravega's controller in the URI."
                raise StreamStoreUnavailable(what, where=self._settings.address, todo=todo) from None
            what = next((what for text, what in _HINTS if text in details), "Pravega's controller does not answer")
            raise unavailable(what, self._settings.address, limit) from None

    def _is_retried(self, error: BaseException) -> bool:
        if not self._has_answered and isinstance(error, grpc.RpcError) and _NO_SUCH_HOST in (error.details() or ""):
            return False
        again = _is_lost(error) or _may_pass(error)
        if again:
            PRAVEGA.failed()
        return again

    def _ask(self, method: str, request: Any, seconds: float, done: Callable[[], bool] | None) -> Any:
        try:
            answer = self._answer(method, request, seconds, done)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE and not (self._has_answered or self._was_reached):
                self._was_reached = True
                with suppress(StreamStoreUnavailable):
                    reach(self._settings, REACH_SECONDS)
            raise
        self._has_answered = True
        return answer

    def _answer(self, method: str, request: Any, seconds: float, done: Callable[[], bool] | None) -> Any:
        asked = getattr(self._ready(), method)
        if done is None:
            return asked(request, timeout=seconds, metadata=self._metadata)
        answer = asked.future(request, timeout=seconds, metadata=self._metadata)
        while True:
            try:
                return answer.result(LOOK_SECONDS)
            except grpc.FutureTimeoutError:
                if done():
                    answer.cancel()
                    return None

    def call_all(self, questions: Sequence[tuple[str, Any]]) -> list[Any]:
        """Make several calls, each a method and its message, concurrently.

        Returns:
            The responses in order; None where it is NOT_FOUND.

        Raises:
            As `call`, except `NotFound`.
        """
        started = []
        if len(questions) > 1:
            try:
                stub = self._ready()
                started = [
                    getattr(stub, method).future(request, timeout=self._settings.timeout, metadata=self._metadata)
                    for method, request in questions
                ]
            except (grpc.RpcError, OSError):
                started = []
        answers = []
        for number, (method, request) in enumerate(questions):
            try:
                with PRAVEGA:
                    answers.append(started[number].result() if started else self.call(method, request))
            except NotFound:
                answers.append(None)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    answers.append(None)
                elif error.code() in _LOST or _may_pass(error):
                    answers += self.call_all([(method, request)])
                else:
                    raise self._problem(method, error) from None
        return answers

    def close(self) -> None:
        """Close the channel; pending calls are cancelled."""
        with self._lock:
            self._closed = True
            if self._channel is not None:
                with PRAVEGA:  # it waits for calls that an interrupt has left behind
                    self._channel.close()

    def _ready(self) -> Any:
        with self._lock:
            if self._closed:
                raise StreamStoreError("the stream store is closed", where=self._settings.uri)
            if self._stub is None:
                self._channel = open_channel(self._settings)
                self._stub = ControllerServiceStub(self._channel)
            return self._stub

    def _problem(self, method: str, error: grpc.RpcError) -> Exception:
        code, details = error.code(), " ".join((error.details() or "").split())[:200]
        if code == grpc.StatusCode.NOT_FOUND:
            return NotFound(details)
        where = self._settings.uri
        if code in _REFUSED:
            what = f"Pravega denied {method}" + (f" ({details})" if details else "")
            user = self._settings.username
            todo = f"Check the permissions of user {user}." if user else "Set PRAVEGA_USERNAME and PRAVEGA_PASSWORD."
            if method in _NEEDED:
                todo = f"{todo} {_NEEDED[method]}"
            if code == grpc.StatusCode.UNAUTHENTICATED and user:
                what = f"Pravega rejected the login of {user}"
                todo = "Check PRAVEGA_USERNAME and PRAVEGA_PASSWORD (or the options of Spark's source)."
            return AccessDenied(what, where=where, todo=todo)
        if code == grpc.StatusCode.UNAVAILABLE:
            signature = "CERTIFICATE_VERIFY_FAILED" in (error.details() or "")
            return not_trusted("the controller's", "unknown authority" if signature else "another host's", where)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return WireError(
                f"the controller does not support {method}", where=where, todo="Check that it runs Pravega 0.13."
            )
        return RequestFailed(f"the controller failed at {method} ({code.name}: {details})", where=where)


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, OSError):  # while asking the server for its name
        return True
    if not isinstance(error, grpc.RpcError) or error.code() not in _LOST:
        return False
    details = error.details() or ""
    return not any(text in details for text in _NOT_TRUSTED)


def _may_pass(error: BaseException) -> bool:
    """Return whether the controller failed in a way that the next attempt may not."""
    return isinstance(error, grpc.RpcError) and error.code() in _PASSING


def open_channel(settings: PravegaSettings) -> grpc.Channel:
    """Open a channel to a cluster's controller; it connects with the first call."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", LARGEST_ANSWER_BYTES),
        # segment stores are reached directly too
        ("grpc.enable_http_proxy", 0),
        # closing a store closes its connection
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    if not settings.tls:
        return grpc.insecure_channel(settings.address, options)
    if not settings.verify_hostname:
        options.append(("grpc.ssl_target_name_override", _name_in_certificate(settings)))
    credentials = grpc.ssl_channel_credentials(root_certificates=settings.ca_certificates())
    return grpc.secure_channel(settings.address, credentials, options)


def _name_in_certificate(settings: PravegaSettings) -> str:
    """Return a name in the controller's certificate: gRPC always requires one, so look it up first.

    The signature is verified here and again by gRPC.
    """
    context = settings.tls_context()
    assert context is not None  # noqa: S101  (only called for TLS)
    host = settings.host.strip("[]")
    try:
        with (
            socket.create_connection((host, settings.port), timeout=settings.timeout) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            certificate: Any = secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        raise not_trusted("the controller's", error.verify_message, settings.uri) from None
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind in {"DNS", "IP Address"}]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else host
