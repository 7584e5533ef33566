"""S3's names, and how to reach a bucket, as plain values that are sent to tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamvault.objectstore.errors import ObjectStoreError

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
