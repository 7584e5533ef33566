"""Access from plain variables of the environment, without botocore, which takes a quarter of a second to load.

Only where nothing else can decide: keys, an endpoint that is not Amazon's, no AWS configuration, and of other variables
only those that are known here to mean nothing for S3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from streamvault.objectstore.s3.access import S3Access, StaticKeys, read_bundle

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
