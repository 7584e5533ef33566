"""AWS connections, as the Amazon provider reads them: environment variables, a client, or an archive's address."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamvault.objectstore.uri import RootAddress


def aws_environment(conn_id: str | None) -> dict[str, str | None]:
    """Return the standard AWS environment variables for a connection; None unsets a variable.

    Keys are passed as they are, a profile by its name. A role is assumed here, and its keys expire when AWS says (after
    an hour unless the connection sets another duration): a longer run fails, and its retry resumes with new keys. If
    the connection has none of these or does not exist, the worker's own credentials apply.

    The result contains secrets: use it only as a process's environment, never in a rendered field or a log line.
    """
    hook = _hook(conn_id)
    config = hook.conn_config
    variables: dict[str, str | None] = {}
    if config.role_arn:
        assumed = hook.get_credentials()
        variables |= _keys(assumed.access_key, assumed.secret_key, assumed.token)
    elif config.aws_access_key_id:
        variables |= _keys(config.aws_access_key_id, config.aws_secret_access_key, config.aws_session_token)
    elif config.profile_name:
        # keys in the environment would override the profile
        variables |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
        variables["AWS_PROFILE"] = config.profile_name
    endpoint = config.get_service_endpoint_url("s3")
    if endpoint:
        variables["AWS_ENDPOINT_URL"] = endpoint
        variables["AWS_ENDPOINT_URL_S3"] = None
    if config.region_name:
        variables |= dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), config.region_name)
    if isinstance(config.verify, str):
        variables["AWS_CA_BUNDLE"] = config.verify
    return variables


def is_on_s3(value: Any) -> bool:
    """Return whether an argument names a place on S3, or one of several does."""
    if isinstance(value, list | tuple):
        return any(map(is_on_s3, value))
    return isinstance(value, str) and value.partition("://")[0].lower() == "s3"


def s3_client(conn_id: str | None) -> Any:
    """Return a boto3 client for S3."""
    return _hook(conn_id).get_conn()


def root_address(uri: str, conn_id: str | None) -> RootAddress:
    """Return the address of a root or an archive; one on S3 is reached by the connection, without the environment.

    So it can be opened where the environment must not change: in the triggerer, beside others.

    Args:
        uri: the root or the archive.
        conn_id: id of the connection; None: the process's own credentials apply.

    Raises:
        Problem: the URI is not valid, or there are no credentials.
    """
    from streamvault.objectstore.uri import RootAddress  # noqa: PLC0415  (not where DAGs are parsed)

    address = RootAddress.parse(uri)
    if address.name != "s3" or not conn_id:
        return address.resolve()
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from streamvault.objectstore.errors import AccessDenied, ObjectStoreError  # noqa: PLC0415
    from streamvault.objectstore.s3.access import S3Access, StaticKeys, read_bundle  # noqa: PLC0415
    from streamvault.objectstore.s3.aws import uses_virtual_host  # noqa: PLC0415

    hook = _hook(conn_id)
    try:
        client, credentials = hook.get_conn(), hook.get_session().get_credentials()
        if credentials is None:
            raise AccessDenied("no AWS credentials", where=f"connection {conn_id!r}")
        keys = credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        raise ObjectStoreError(f"connection {conn_id!r} cannot be used: {error}", where=uri) from None
    style = (client.meta.config.s3 or {}).get("addressing_style", "auto")
    bundle = hook.conn_config.verify
    access = S3Access(
        endpoint=client.meta.endpoint_url.rstrip("/"),
        region=client.meta.region_name,
        virtual_host=uses_virtual_host(style, client.meta.endpoint_url, address.place),
        authorities=read_bundle(bundle) if isinstance(bundle, str) else "",
        keys=StaticKeys(keys.access_key, keys.secret_key, keys.token or None),
    )
    return replace(address, access=access)


def _keys(key: str, secret: str, token: str | None) -> dict[str, str | None]:
    return {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_SESSION_TOKEN": token or None,
        # the worker's profile may not exist here
        "AWS_PROFILE": None,
    }


def _hook(conn_id: str | None) -> Any:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook  # noqa: PLC0415  (it imports boto3)

    return AwsGenericHook(aws_conn_id=conn_id, client_type="s3")
