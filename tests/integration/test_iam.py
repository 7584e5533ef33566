"""The IAM policies of the guide, enforced by a real server: each allows what it is for, and no more.

A role is assumed with the policy as session policy: what is left are the rights that it names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from objectstore.errors import AccessDenied
from streamvault import check_archive, export_stream, import_stream, list_archives
from tests.servers.s3 import S3Server
from tests.unit.small_archives import KINDS, NAME, Vault

pytestmark = pytest.mark.minio

POLICIES = Path(__file__).parents[2] / "docs" / "guide" / "policies"
ROLE = "arn:aws:iam::123456789012:role/streamvault"

UseS3 = Callable[[S3Server], None]


@dataclass
class Account:
    """A bucket with a stream to archive, and who may do what there."""

    server: S3Server
    bucket: str
    vault: Vault
    use: UseS3

    def may(self, name: str) -> None:
        """From now on only what the policy allows."""
        text = (POLICIES / f"{name}.json").read_text().replace("BUCKET", self.bucket).replace("PREFIX", "vault")
        sts = self.server.session().client("sts", endpoint_url=self.server.endpoint)
        found = sts.assume_role(RoleArn=ROLE, RoleSessionName=name, Policy=json.dumps(json.loads(text)))
        keys = found["Credentials"]
        self.use(
            replace(
                self.server,
                access_key=keys["AccessKeyId"],
                secret_key=keys["SecretAccessKey"],
                session_token=keys["SessionToken"],
            )
        )

    def everything(self) -> None:
        """Whatever the administrator may."""
        self.use(self.server)


@pytest.fixture
def account(minio: S3Server, bucket_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    def use(server: S3Server) -> None:
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        for variable, value in server.environment().items():
            monkeypatch.setenv(variable, value)

    minio.make_bucket(bucket_name)
    vault = Vault(tmp_path, f"s3://{bucket_name}/vault")
    vault.make(events=40)
    use(minio)
    return Account(minio, bucket_name, vault, use)


def leftovers(account: Account) -> list[str]:
    listed = account.server.client().list_objects_v2(Bucket=account.bucket).get("Contents", [])
    return [entry["Key"] for entry in listed if "/_work/" in entry["Key"]]


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind[0])
def test_export(account: Account, kind: tuple[str, str]) -> None:
    account.may("export")
    vault = account.vault
    vault.export(*kind)  # type: ignore[arg-type]
    vault.add(b"more")
    vault.export(*kind)  # type: ignore[arg-type]
    assert leftovers(account) == []
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    with pytest.raises(AccessDenied):
        export_stream(vault.uri(), f"s3://{account.bucket}/elsewhere", master="inline")
    with pytest.raises(Exception, match="AccessDenied"):
        client(account).delete_object(Bucket=account.bucket, Key=f"vault/{NAME}/_manifest/0000000001.json")


def test_import(account: Account) -> None:
    vault = account.vault
    vault.export()
    account.may("import")
    assert [found.archive for found in list_archives(vault.root)] == [vault.archive]
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    restored = import_stream(vault.archive, vault.uri(replace(NAME, stream="back")), master="inline")
    assert restored.events == len(vault.events())
    vault.add(b"more")
    with pytest.raises(AccessDenied, match="permission to write"):
        vault.export()
    with pytest.raises(Exception, match="AccessDenied"):
        client(account).get_object(Bucket=account.bucket, Key="elsewhere/secret")


def client(account: Account):  # type: ignore[no-untyped-def]
    """A client with the rights that are in force."""
    import os  # noqa: PLC0415

    return replace(
        account.server,
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        session_token=os.environ["AWS_SESSION_TOKEN"],
    ).client()
