"""How to reach a bucket, and S3's names; from plain environment variables, without botocore.

botocore takes a quarter of a second to load. It is done without only where nothing else can decide: keys, an endpoint
that is not Amazon's, no AWS configuration, and of other variables only those that are known here to mean nothing for
S3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamvault.objectstore.store import ObjectStoreError

if TYPE_CHECKING:
    from obstore.store import S3Credential  # not there at run time


ARCHIVE_CLASSES = {"GLACIER", "DEEP_ARCHIVE"}
"""Storage classes whose objects cannot be read before they are restored. (GLACIER_IR can.)"""


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """An access key, its secret, and an optional session token. Hidden from the repr."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def __call__(self) -> S3Credential:
        """Return the credentials in obstore's format."""
        return {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "token": self.token,
            "expires_at": None,
        }


@dataclass(frozen=True, slots=True)
class S3Access:
    """How to reach S3, as resolved on the driver and used by executors.

    Attributes:
        endpoint: the server's URL, without the bucket.
        region: the region used to sign requests.
        virtual_host: whether the bucket is part of the host name instead of the path.
        authorities: CA certificates (PEM) to trust in addition to the system's, from ``AWS_CA_BUNDLE``; may be empty.
        keys: static credentials; None for renewable ones (SSO, roles, instance), which each process resolves itself.
        profile: the AWS profile in use, or None.
        checksum: the algorithm, as S3 names it, of the checksum that every object is sent with; empty for none, where
            ``AWS_REQUEST_CHECKSUM_CALCULATION`` (or the profile) says ``when_required``.
    """

    endpoint: str
    region: str
    virtual_host: bool
    authorities: str = field(default="", repr=False)
    keys: StaticKeys | None = None
    profile: str | None = None
    checksum: str = "SHA256"


def read_bundle(path: str) -> str:
    """Return the certificates of a PEM file.

    Raises:
        ObjectStoreError: it is not such a file.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        text = ""
    if "BEGIN CERTIFICATE" not in text:
        raise ObjectStoreError("AWS_CA_BUNDLE is not a readable file of PEM certificates", where=path)
    return text


DEFAULT_REGION = "us-east-1"

ADDRESSING_STYLE = "STREAMVAULT_S3_ADDRESSING_STYLE"
"""Variable with the addressing style: path, virtual or auto. AWS has it only in configuration files."""

_READ = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_CA_BUNDLE",
}
_MEANINGLESS = {
    "AWS_REGION",  # botocore reads AWS_DEFAULT_REGION
    "AWS_ALLOW_HTTP",
    "AWS_DEFAULT_OUTPUT",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_PAGER",
}

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_ENDPOINT = re.compile(rf"https?://(?P<host>{_LABEL}(\.{_LABEL}){{0,8}})(:([0-9]{{1,4}}|[1-5][0-9]{{4}}))?/?")
_REGION = re.compile(r"([a-z]{2}(-[a-z]+){1,3}-[0-9])?")


def access_from_environment(environment: Mapping[str, str] = os.environ) -> S3Access | None:
    """Return what `objectstore.s3.aws.resolve_access` would, or None if only botocore can tell.

    Raises:
        ObjectStoreError: ``AWS_CA_BUNDLE`` is not a file of certificates.
    """
    if any(name.startswith("AWS_") and name not in _READ | _MEANINGLESS for name in environment):
        return None
    if os.path.lexists(os.path.expanduser("~/.aws")):  # noqa: PTH111  (as botocore does it)
        return None
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    endpoint = _ENDPOINT.fullmatch(environment.get("AWS_ENDPOINT_URL", ""))
    region = environment.get("AWS_DEFAULT_REGION", "")
    bundle = environment.get("AWS_CA_BUNDLE")
    if not (key and secret and endpoint and _REGION.fullmatch(region)) or "amazonaws" in endpoint["host"]:
        return None
    if bundle is not None and not bundle.strip():
        return None
    keys = StaticKeys(key, secret, environment.get("AWS_SESSION_TOKEN") or None)
    authorities = read_bundle(bundle) if bundle is not None else ""
    virtual_host = environment.get(ADDRESSING_STYLE) == "virtual"
    return S3Access(endpoint[0].rstrip("/"), region or DEFAULT_REGION, virtual_host, authorities, keys)
