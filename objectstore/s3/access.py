"""How a bucket is reached, as plain values that travel to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from obstore.store import S3Credential  # not there at run time

__all__ = ["S3Access", "StaticKeys"]


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """An access key, its secret, and a session token if there is one. Never shown."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def __call__(self) -> S3Credential:
        """What obstore asks for."""
        return {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "token": self.token,
            "expires_at": None,
        }


@dataclass(frozen=True, slots=True)
class S3Access:
    """What the driver found out about reaching S3, and what an executor needs to do the same.

    Attributes:
        endpoint: the server's URL, without the bucket.
        region: as signed into requests.
        virtual_host: whether the bucket is named in the host instead of the path.
        authorities: certificates to trust beside the system's (PEM), from ``AWS_CA_BUNDLE``; may be empty.
        keys: static credentials; None if they are of a kind that is renewed (SSO, roles, instance), which each
            process then resolves by itself.
        profile: the AWS profile in force, or None.
    """

    endpoint: str
    region: str
    virtual_host: bool
    authorities: str = field(default="", repr=False)
    keys: StaticKeys | None = None
    profile: str | None = None
