"""AWS connections, as the Amazon provider reads them: environment variables, a client, or an archive's address.

Each of the three is made of one reading, so operators, sensors, triggers and warming reach S3 in the same way.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk.exceptions import AirflowFailException

from streamvault.objectstore.s3.access import ADDRESSING_STYLE

if TYPE_CHECKING:
    from streamvault.objectstore.uri import RootAddress


def aws_environment(conn_id: str | None) -> dict[str, str | None]:
    """Return the standard AWS environment variables for a connection; None unsets a variable.

    Keys are passed as they are, a profile by its name. A role is assumed here, and its keys expire when AWS says (after
    an hour unless the connection sets another duration): a longer run fails, and its retry resumes with new keys. If
    the connection has none of these or does not exist, the worker's own credentials apply.

    The result contains secrets: use it only as a process's environment, never in a rendered field or a log line.

    Raises:
        AirflowFailException: the connection asks not to verify the server's certificate.
    """
    found = _read(conn_id)
    hook, config = found.hook, found.hook.conn_config
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
    if found.endpoint:
        variables["AWS_ENDPOINT_URL"] = found.endpoint
        variables["AWS_ENDPOINT_URL_S3"] = None
    if config.region_name:
        variables |= dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), config.region_name)
    if found.bundle:
        variables["AWS_CA_BUNDLE"] = found.bundle
    if found.style:
        variables[ADDRESSING_STYLE] = found.style
    for name, value in found.variants.items():
        variables[name] = str(value).lower()
    return variables


def is_on_s3(value: Any) -> bool:
    """Return whether an argument names a place on S3, or one of several does."""
    if isinstance(value, list | tuple):
        return any(map(is_on_s3, value))
    return isinstance(value, str) and value.partition("://")[0].lower() == "s3"


def s3_client(conn_id: str | None) -> Any:
    """Return a boto3 client for S3.

    Raises:
        AirflowFailException: as for `aws_environment`.
    """
    return _read(conn_id).hook.get_conn()


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

    from streamvault.objectstore.s3.access import S3Access, StaticKeys, read_bundle  # noqa: PLC0415
    from streamvault.objectstore.s3.aws import uses_virtual_host  # noqa: PLC0415
    from streamvault.objectstore.store import AccessDenied, ObjectStoreError  # noqa: PLC0415

    found = _read(conn_id)
    hook = found.hook
    try:
        client, credentials = hook.get_conn(), hook.get_session().get_credentials()
        if credentials is None:
            raise AccessDenied("no AWS credentials", where=f"connection {conn_id!r}")
        keys = credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        raise ObjectStoreError(f"connection {conn_id!r} cannot be used: {error}", where=uri) from None
    bundle = found.bundle or os.environ.get("AWS_CA_BUNDLE", "")
    style = found.style or os.environ.get(ADDRESSING_STYLE) or "auto"
    access = S3Access(
        endpoint=client.meta.endpoint_url.rstrip("/"),
        region=client.meta.region_name,
        virtual_host=uses_virtual_host(style, client.meta.endpoint_url, address.place),
        authorities=read_bundle(bundle) if bundle else "",
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


class _Reading(NamedTuple):
    """What a connection says of S3, besides its credentials and its region.

    Attributes:
        hook: the Amazon provider's.
        endpoint: the server's URL; empty for Amazon's.
        bundle: file of CA certificates to trust; empty for the worker's setting.
        style: addressing style: path, virtual, or auto; empty for the worker's setting.
        variants: variables that select another of Amazon's endpoints → whether it does.
    """

    hook: Any
    endpoint: str
    bundle: str
    style: str
    variants: dict[str, bool]


def _read(conn_id: str | None) -> _Reading:
    """Read a connection; one that does not exist says nothing.

    Raises:
        AirflowFailException: it asks not to verify the server's certificate.
    """
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook  # noqa: PLC0415  (it imports boto3)

    hook: Any = AwsGenericHook(aws_conn_id=conn_id, client_type="s3")
    config = hook.conn_config
    endpoint, botocore = config.get_service_endpoint_url("s3") or "", config.botocore_config
    if config.verify is False and not endpoint.startswith("http://"):
        raise AirflowFailException(
            f"connection {conn_id!r}: the server's certificate is always verified. "
            "Set verify to a file of CA certificates (PEM) on the workers."
        )
    flags = {"AWS_USE_FIPS_ENDPOINT": "use_fips_endpoint", "AWS_USE_DUALSTACK_ENDPOINT": "use_dualstack_endpoint"}
    asked = {variable: getattr(botocore, name, None) for variable, name in flags.items()}
    return _Reading(
        hook,
        endpoint,
        bundle=config.verify if isinstance(config.verify, str) else "",
        style=(getattr(botocore, "s3", None) or {}).get("addressing_style", ""),
        variants={variable: value for variable, value in asked.items() if value is not None},
    )
