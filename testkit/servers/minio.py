"""A real MinIO: the S3 server with the widest coverage, and the one that grants temporary, limited credentials."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from testkit.servers.golang import go_program
from testkit.servers.process import free_ports
from testkit.servers.s3 import HOST, S3Program, S3Server

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


class MinioServer(S3Program):
    """MinIO on one folder."""

    name = "minio"
    ready_path = "/minio/health/ready"

    def program(self) -> Path:
        """See the base class."""
        return go_program(MODULE, VERSION)

    def arguments(self, address: str, folder: Path) -> list[str]:
        """See the base class."""
        console = f"{HOST}:{free_ports(1)[0]}"
        certificates = str(folder / "certificates")
        return [
            *("server", "--address", address, "--console-address", console, "--certs-dir", certificates),
            str(folder / "data"),
        ]

    def environment(self) -> Mapping[str, str]:
        """See the base class."""
        return {
            **super().environment(),
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CALLHOME_ENABLE": "off",
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
        }


def limited(server: S3Server, policy: Mapping[str, object]) -> S3Server:
    """The same server with temporary credentials (valid for an hour) that may do what `policy` allows, no more."""
    answer = (
        server.session()
        .client("sts", endpoint_url=server.endpoint)
        .assume_role(
            # MinIO asks for both and looks at neither
            RoleArn="arn:aws:iam::000000000000:role/test",
            RoleSessionName="test",
            Policy=json.dumps(policy),
        )
    )
    credentials = answer["Credentials"]
    return dataclasses.replace(
        server,
        access_key=credentials["AccessKeyId"],
        secret_key=credentials["SecretAccessKey"],
        session_token=credentials["SessionToken"],
    )


def requests_served(server: S3Server) -> dict[str, int]:
    """How many requests the server has answered, by its own count: its name of the API → number."""
    with urllib.request.urlopen(f"{server.endpoint}/minio/v2/metrics/node", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'^minio_s3_requests_total\{api="([a-z0-9]+)",[^}]*\} ([0-9.e+]+)$', text, re.MULTILINE)
    return {api: int(float(count)) for api, count in found}


def read_only(server: S3Server, bucket: str) -> S3Server:
    """The same server with credentials that may list and read one bucket and write nothing."""
    return limited(
        server,
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": ["s3:GetBucketLocation", "s3:ListBucket", "s3:GetObject"],
                    "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
                }
            ],
        },
    )
