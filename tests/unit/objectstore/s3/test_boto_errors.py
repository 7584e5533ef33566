"""Exceptions of boto3: transient ones are distinguished from permanent ones."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    SSLError,
)

from streamvault.objectstore.s3.aws import named_errors
from streamvault.objectstore.store import (
    AccessDenied,
    NoSuchBucket,
    NoSuchObject,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ServerBusy,
)

WHERE = "s3://vault/key"


def said(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "HeadObject")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (said("SlowDown", 503), ServerBusy),
        (said("503", 503), ServerBusy),
        (said("InternalError", 500), ServerBusy),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), ObjectStoreUnavailable),
        (ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"), ObjectStoreUnavailable),
        (SSLError(endpoint_url="https://127.0.0.1:1", error="certificate"), ObjectStoreError),
        (NoCredentialsError(), ObjectStoreError),
        (said("ExpiredToken", 400), AccessDenied),
        (said("403", 403), AccessDenied),
        (said("NoSuchBucket", 404), NoSuchBucket),
        (said("404", 404), NoSuchObject),
        (said("NotImplemented", 501), ObjectStoreError),
    ],
)
def test_boto_errors_become_named_errors(error: ClientError | BotoCoreError, kind: type[ObjectStoreError]) -> None:
    with pytest.raises(ObjectStoreError) as raised, named_errors("inspect", WHERE):
        raise error
    assert type(raised.value) is kind
    assert raised.value.where == WHERE
