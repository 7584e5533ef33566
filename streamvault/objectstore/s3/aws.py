"""Resolves S3 endpoint and credentials from the standard AWS environment and files, with botocore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, SSLError  # noqa: A004  (as botocore has it)
from botocore.loaders import Loader, create_loader
from obstore.auth.boto3 import Boto3CredentialProvider

from streamvault.objectstore.retrying import Retries
from streamvault.objectstore.s3.access import ADDRESSING_STYLE, DEFAULT_REGION, S3Access, StaticKeys, read_bundle
from streamvault.objectstore.s3.errors import TRANSIENT_CODES, TRANSIENT_STATUS
from streamvault.objectstore.store import (
    AccessDenied,
    NoSuchBucket,
    NoSuchObject,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ServerBusy,
)

if TYPE_CHECKING:
    from obstore.store import S3Credential  # not there at run time


# obstore requests new credentials five minutes before these expire; botocore renews its own at least ten minutes before
# they expire, so the ones it returns are valid for at least that long.
CREDENTIALS_LIFE = timedelta(minutes=9)
MAX_CONNECTIONS = 32

T = TypeVar("T")


def resolve_access(bucket: str) -> S3Access:
    """Resolve credentials, profile, region and endpoint as boto3 does.

    Raises:
        AccessDenied: there are no credentials, or they cannot be obtained.
        ObjectStoreError: the AWS configuration is invalid.
    """
    try:
        session = _session(None)
        credentials = _credentials(session)
        region = session.get_config_variable("region") or DEFAULT_REGION
        # The client serves only to determine the endpoint (environment, profile and services sections, FIPS etc.).
        client = session.create_client("s3", region_name=region, config=Config(retries={"total_max_attempts": 1}))
        endpoint = str(client.meta.endpoint_url)
        style = _addressing_style(session)
        bundle = session.get_config_variable("ca_bundle")
        profile = session.profile
        checksums = str(session.get_config_variable("request_checksum_calculation"))
    except (BotoCoreError, ValueError) as error:
        raise _invalid(error) from None
    return S3Access(
        endpoint=endpoint.rstrip("/"),
        region=region,
        virtual_host=uses_virtual_host(style, endpoint, bucket),
        authorities=read_bundle(bundle) if isinstance(bundle, str) and bundle else "",
        keys=_static(credentials),
        profile=profile,
        **({"checksum": ""} if checksums.lower() == "when_required" else {}),
    )


def open_client(access: S3Access) -> Any:
    """Open a botocore client, for requests that obstore does not support.

    Raises:
        AccessDenied: there are no credentials.
        ObjectStoreError: the AWS configuration is invalid.
    """
    try:
        session = _session(access.profile)
        if access.keys is None:
            _credentials(session)  # gives a clearer error than botocore
        else:
            session.set_credentials(access.keys.access_key, access.keys.secret_key, access.keys.token)
        return session.create_client(
            "s3",
            region_name=access.region,
            endpoint_url=access.endpoint,
            config=Config(
                max_pool_connections=MAX_CONNECTIONS,
                retries={"mode": "standard", "total_max_attempts": 6},
                s3={"addressing_style": "virtual" if access.virtual_host else "path"},
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise _invalid(error) from None


def _invalid(error: Exception) -> ObjectStoreError:
    todo = "An endpoint is http://HOST:PORT or https://HOST:PORT." if "endpoint" in str(error) else ""
    return ObjectStoreError(f"invalid AWS configuration: {error}", todo=todo)


@lru_cache(maxsize=4)
def shared_client(access: S3Access) -> Any:
    """Return a client that a process opens once; see `open_client`."""
    return open_client(access)


def renewed_credentials(profile: str | None) -> Callable[[], S3Credential]:
    """Return a provider of a profile's credentials for obstore, renewed before they expire.

    Raises:
        AccessDenied: they cannot be obtained.
    """
    session = _session(profile)
    _credentials(session)  # gives a clearer error than obstore
    return Boto3CredentialProvider(session, ttl=CREDENTIALS_LIFE)


def _session(profile: str | None) -> botocore.session.Session:
    """Open a session that shares the loaded S3 model: reading it takes 0.1 to 0.2 s."""
    session = botocore.session.Session(profile=profile)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


_loader: Callable[[str | None], Loader] = cache(create_loader)


def _credentials(session: botocore.session.Session) -> Credentials:
    try:
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise AccessDenied(f"cannot get AWS credentials: {error}") from None
    if credentials is None:
        raise AccessDenied(
            "no AWS credentials", todo="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        )
    return credentials


def _static(credentials: Credentials) -> StaticKeys | None:
    if isinstance(credentials, RefreshableCredentials):
        return None
    found = credentials.get_frozen_credentials()
    return StaticKeys(found.access_key or "", found.secret_key or "", found.token)


def _addressing_style(session: botocore.session.Session) -> str:
    if style := os.environ.get(ADDRESSING_STYLE):
        return style
    settings = session.get_scoped_config().get("s3", {})
    return str(settings.get("addressing_style", "auto")) if isinstance(settings, dict) else "auto"


def uses_virtual_host(style: str, endpoint: str, bucket: str) -> bool:
    """Return whether to use virtual-host addressing: as configured, else on AWS if TLS allows the bucket's name."""
    if style in {"path", "virtual"}:
        return style == "virtual"
    host = endpoint.partition("://")[2].partition("/")[0].partition(":")[0]
    on_aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
    return on_aws and "." not in bucket and bucket == bucket.lower()


_FORBIDDEN = {"AccessDenied", "403", "Forbidden"}
_DENIED = {*_FORBIDDEN, "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "InvalidTokenId"}
_MISSING = {"NoSuchKey", "NoSuchVersion", "404"}


@contextmanager
def named_errors(action: str, where: str, permission: str = "") -> Iterator[None]:
    """Translate botocore's errors into object store errors.

    Args:
        action: the operation, for messages.
        where: the object's or the bucket's URI.
        permission: what the action needs, to be named if it is missing.

    Raises:
        AccessDenied: the credentials are invalid or lack permission.
        NoSuchBucket: the bucket does not exist.
        NoSuchObject: the object does not exist.
        ObjectStoreUnavailable: no answer came.
        ServerBusy: the server throttles or fails.
        ObjectStoreError: any other error.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        if (away := unavailable(error, action, where)) is not None:
            raise away from None
        if not isinstance(error, ClientError):
            raise ObjectStoreError(f"cannot {action}: {error}", where=where) from None
        code = code_of(error)
        if permission and code in _FORBIDDEN:
            raise AccessDenied(f"no permission to {action}", where=where, todo=f"Allow {permission} there.") from None
        if code in _DENIED:
            raise AccessDenied(f"no permission to {action} ({code})", where=where) from None
        if code == "NoSuchBucket":
            raise NoSuchBucket.of(where) from None
        if code in _MISSING:
            raise NoSuchObject("no such object", where=where) from None
        raise ObjectStoreError(f"the server refused to {action} ({code})", where=where) from None


def ask(retries: Retries, request: Callable[[], T], action: str, where: str, permission: str = "") -> T:
    """Return what a request by botocore returns, retried like any other request; errors as for `named_errors`."""

    def attempt() -> T:
        with named_errors(action, where, permission):
            return request()

    return retries(attempt)


def code_of(error: ClientError | BotoCoreError) -> str:
    """Return S3's error code; empty if there is none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def unavailable(error: ClientError | BotoCoreError, action: str, where: str) -> ObjectStoreUnavailable | None:
    """Return the error if a later retry may help (no answer, throttling or a server failure), else None."""
    if isinstance(error, ClientError):
        code = code_of(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in TRANSIENT_CODES or status in TRANSIENT_STATUS:
            what = f"cannot {action}: the server is busy or failing ({code})"
            return ServerBusy(what, where=where, todo="Try again later.")
    elif isinstance(error, ConnectionError | HTTPClientError) and not isinstance(error, SSLError):
        return ObjectStoreUnavailable(f"cannot {action}: {error}", where=where, todo="Try again later.")
    return None
