"""Translates obstore's errors, and says which of S3's answers are retried.

obstore reports errors as long texts: a sentence with the status and the server's XML, then a dump of the Rust error.
Both are parsed only here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

from streamvault.common.errors import Problem
from streamvault.objectstore.store import (
    AccessDenied,
    AlreadyExists,
    InArchiveClass,
    InvalidRoot,
    NoSuchBucket,
    NoSuchHost,
    NoSuchObject,
    ObjectStoreError,
    ObjectStoreUnavailable,
    OutOfSpace,
    ServerBusy,
)

_STATUS = re.compile(r"status code: ([0-9]{3})")
# In the server's XML, or in obstore's message about one key of a bulk delete.
_CODE = re.compile(r"(?:<Code>\s*|\(code: )([A-Za-z0-9._-]{1,80})(?:\s*</Code>|\))")
_SAID = re.compile(r"<Message>\s*(.{1,300}?)\s*</Message>", re.DOTALL)
_PROVIDER = re.compile(r"External AWS credential provider: (?:\w+: )?(.*)", re.DOTALL)
_REGION = re.compile(r"<Region>\s*([a-z0-9-]{1,40})\s*</Region>")

_CHECK_KEYS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile in AWS_PROFILE, and the endpoint."
_CHECK_SESSION = "Check AWS_SESSION_TOKEN: it must belong to the access key; unset it for a key without one."
_DENIED = {
    "InvalidAccessKeyId": ("unknown access key", _CHECK_KEYS),
    "XAdminUserNotFound": ("unknown access key", _CHECK_KEYS),
    "SignatureDoesNotMatch": ("the secret access key is wrong", _CHECK_KEYS),
    "InvalidToken": ("the session token is wrong", _CHECK_SESSION),
    "InvalidTokenId": ("the session token is wrong", _CHECK_SESSION),
    "ExpiredToken": ("the credentials have expired", "Get new ones and run the same command again."),
    "TokenRefreshRequired": ("the credentials have expired", "Get new ones and run the same command again."),
    "RequestTimeTooSkewed": ("this machine's clock differs too much from the server's", "Set the clock."),
    "AccountProblem": ("the server rejected the account", ""),
    "AllAccessDisabled": ("the server rejected the account", ""),
}
TRANSIENT_CODES = {
    "BandwidthLimitExceeded",
    "ConditionalRequestConflict",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "XMinioServerNotInitialized",
}
TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}
SPOILED_CODES = {"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
_FULL = {"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
_WRONG_REGION = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
_IN_THE_WAY = {
    "ExistingObjectIsDirectory",
    "ExistingObjectIsObject",
    "ObjectParentIsFile",
    "XMinioObjectExistsAsDirectory",
    "XMinioParentIsObject",
}
_PERMISSION = {
    "put": ("no permission to write", "Allow s3:PutObject there; a read-only bucket cannot hold an archive."),
    "get": ("no permission to read", "Allow s3:GetObject there."),
    "list": ("no permission to list", "Allow s3:ListBucket there."),
    "delete": ("no permission to delete", "Allow s3:DeleteObject there."),
}

# Connection failures: text in the dump of the Rust error, message, next step.
_LOST = [
    ("ConnectionRefused", "nothing is listening at the endpoint", "Start the server, or check AWS_ENDPOINT_URL."),
    ("dns error", "the endpoint's host name does not resolve", "Check AWS_ENDPOINT_URL and the network."),
    ("TimedOut", "the server did not answer in time", "Check the server, AWS_ENDPOINT_URL and the network."),
    ("NetworkUnreachable", "the network is unreachable", ""),
    ("HostUnreachable", "the endpoint's host is unreachable", ""),
]
_CHECK_PROXY = "Check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY; NO_PROXY lists hosts that are reached without a proxy."
_NO_SUCH_HOST = ("Name or service not known", "No address associated with hostname")
"""What the resolver says if the name does not exist; that it has no answer now may pass."""

_NO_TLS = ("InvalidContentType", "CorruptMessage", "wrong version number")
_UNTRUSTED = ("InvalidCertificate", "UnknownIssuer", "invalid peer certificate", "certificate verify failed")


@dataclass(frozen=True)
class _Report:
    """A parsed obstore error: the sentence, the dump of the Rust error, status, code and message of the response."""

    sentence: str
    dump: str
    status: int
    code: str
    said: str
    action: str
    at: str
    key: str
    proxy: str

    @property
    def status_and_code(self) -> str:
        return f"{self.status or ''} {self.code}".strip()


def translate(error: BaseException, *, action: str, bucket: str, endpoint: str, key: str) -> Problem:
    """Translate an error of obstore.

    Args:
        error: one of `objectstore.obstore_store.BACKEND_ERRORS`.
        action: ``put``, ``get``, ``list`` or ``delete``.
        bucket: the bucket's URI, e.g. ``s3://bucket``.
        endpoint: the server's URL.
        key: the object's URI; the bucket's for listings.
    """
    sentence, _, dump = str(error).partition("\n\nDebug source:")
    status, code, said = _STATUS.search(sentence), _CODE.search(sentence), _SAID.search(sentence)
    report = _Report(
        sentence,
        dump,
        int(status[1]) if status else 0,
        code[1] if code else "",
        " ".join(said[1].split()) if said else "",
        action,
        f"{bucket} at {endpoint}" if endpoint else bucket,
        key,
        _proxy_of(endpoint),
    )
    found = (
        _busy(report)
        or _wrong_place(report)
        or _wrong_class(report)
        or _refused(report)
        or _no_way(report)
        or _lost(report)
    )
    if found is not None:
        return found
    if isinstance(error, AlreadyExistsError) and report.status != 409:  # obstore reports any 409 as a taken key
        return AlreadyExists("the object exists", where=key)
    if isinstance(error, FileNotFoundError) or report.status == 404 or report.code == "NoSuchKey":
        return NoSuchObject("no such object", where=key)
    if isinstance(error, UnauthenticatedError | PermissionDeniedError):
        given = _PROVIDER.search(sentence)
        reason = given[1] if given else sentence
        return AccessDenied(
            f"no credentials: {_first(reason)}", where=report.at, todo="Check the profile in AWS_PROFILE."
        )
    return _rejected(report)


def _rejected(report: _Report) -> Problem:
    """Errors without a meaning of their own: what the server said of them."""
    what = f"{report.status_and_code}{report.said and ': '}{report.said}" or _first(report.sentence)
    todo = ""
    if "checksum" in report.said.lower():
        todo = "If the server does not know checksums, set AWS_REQUEST_CHECKSUM_CALCULATION=when_required."
    elif report.status == 501 and report.action == "put":
        todo = "A server must accept If-None-Match to hold an archive, or ignore it."
    return ObjectStoreError(f"the server rejected the request ({what})", where=report.key, todo=todo)


def _proxy_of(endpoint: str) -> str:
    """Return the proxy through which requests go, as ``HOST:PORT``; empty for none."""
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or not url.hostname or proxy_bypass(url.hostname):
        return ""
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}").netloc.rpartition("@")[2]


def beyond_the_end(error: BaseException) -> bool:
    """Return whether a ranged read failed because the object ends before the range starts."""
    sentence, _, dump = str(error).partition("\n\nDebug source:")
    status = _STATUS.search(sentence)
    return status[1] == "416" if status else "StartTooLarge" in dump


def _busy(report: _Report) -> Problem | None:
    """Temporary failures of the server."""
    # A 409 alone does not mean that the key is taken (that is 412): other requests for the key may be in progress.
    is_conflict = report.status == 409 and not report.code
    if is_conflict or report.code in TRANSIENT_CODES or report.status in TRANSIENT_STATUS:
        what = f"the server is busy or failing ({report.status_and_code})"
        return ServerBusy(what, where=report.at, todo="Try again later.")
    if report.code in SPOILED_CODES:
        what, todo = "data was damaged in transit", "If this persists, check this machine's memory and network."
        return ObjectStoreUnavailable(f"{what} ({report.status_and_code})", where=report.key, todo=todo)
    if report.code in _FULL or report.status == 507:
        what = f"the server is out of space ({report.status_and_code})"
        return OutOfSpace(what, where=report.at, todo="Free space and run this again.")
    return None


def _wrong_place(report: _Report) -> Problem | None:
    """Errors about the bucket or the key."""
    if report.code in _WRONG_REGION or report.status == 301 or "redirect without LOCATION" in report.sentence:
        region = _REGION.search(report.sentence)
        todo = f"Set AWS_REGION={region[1]}." if region else "Set AWS_REGION to the bucket's region."
        return ObjectStoreError("the bucket is in another region", where=report.at, todo=todo)
    if report.code == "NoSuchBucket":
        return NoSuchBucket.of(report.at)
    if report.code == "InvalidBucketName":
        return InvalidRoot("invalid bucket name", where=report.at)
    if report.code in _IN_THE_WAY:
        what = f"an unrelated object is in the way ({report.code})"
        return ObjectStoreError(what, where=report.key, todo="Move it elsewhere.")
    return None


def _wrong_class(report: _Report) -> Problem | None:
    """Errors about the storage class."""
    if report.code == "InvalidStorageClass":
        todo = "Omit --storage-class, or use one the server supports."
        return ObjectStoreError("the server does not support this storage class", where=report.at, todo=todo)
    if report.code == "InvalidObjectState":
        return InArchiveClass.of("", report.key)
    return None


def _refused(report: _Report) -> Problem | None:
    """Invalid credentials or missing permissions."""
    if report.code in _DENIED:
        what, todo = _DENIED[report.code]
        return AccessDenied(f"{what} ({report.code})", where=report.at, todo=todo)
    if report.status in {401, 403} or report.code == "AccessDenied":
        what, todo = _PERMISSION[report.action]
        return AccessDenied(f"{what} ({report.status_and_code})", where=report.key, todo=todo)
    return None


def _no_way(report: _Report) -> Problem | None:
    """Permanent failures to talk to the server."""
    if any(mark in report.dump for mark in _UNTRUSTED):
        todo = "Set AWS_CA_BUNDLE to the certificate of the authority that signed it."
        return ObjectStoreError("the server's certificate is not trusted", where=report.at, todo=todo)
    if any(mark in report.dump for mark in _NO_TLS):
        todo = "Use http:// in AWS_ENDPOINT_URL."
        return ObjectStoreError("the server does not speak TLS", where=report.at, todo=todo)
    if "NotPartial" in report.dump:
        what = "the server ignores the Range header"
        return ObjectStoreError(what, where=report.key, todo="It cannot hold an archive.")
    if "UnexpectedRange" in report.dump:
        return ObjectStoreError("the server sent other bytes than those requested", where=report.key)
    return None


def _lost(report: _Report) -> Problem | None:
    """Lost connections."""
    if "dns error" in report.dump and any(mark in report.dump for mark in _NO_SUCH_HOST):
        return NoSuchHost("there is no host with this name", where=report.at, todo="Check AWS_ENDPOINT_URL.")
    for mark, what, todo in _LOST:
        if mark in report.dump and report.proxy:
            return ObjectStoreUnavailable(
                what, where=f"{report.at} through the proxy {report.proxy}", todo=_CHECK_PROXY
            )
        if mark in report.dump:
            return ObjectStoreUnavailable(what, where=report.at, todo=todo)
    if "HTTP error" in report.sentence:
        return ObjectStoreUnavailable("the connection to the server was lost", where=report.at, todo="Try again later.")
    return None


def _first(sentence: str) -> str:
    """Return the start of an unexpected message, without XML."""
    return re.sub(r"<[^>]*>", " ", sentence)[:200].strip()
