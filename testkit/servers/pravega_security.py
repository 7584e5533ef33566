"""The files and settings that make a standalone Pravega ask for TLS and for passwords."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testkit.servers.certificates import Certificates


@dataclass(frozen=True)
class Account:
    """Somebody who may use the server.

    Attributes:
        user: the user's name.
        password: the password.
        rights: Pravega's list of rights, ``resource,permission`` joined by ``;``.
    """

    user: str
    password: str
    rights: str = "prn::*,READ_UPDATE"


ADMIN = Account("admin", "test-admin-password")


def tls_settings(certificates: Certificates) -> dict[str, str]:
    """Settings for TLS on every port."""
    return {
        "singlenode.security.tls.enable": "true",
        "singlenode.security.tls.privateKey.location": str(certificates.key),
        "singlenode.security.tls.certificate.location": str(certificates.certificate),
        "singlenode.security.tls.keyStore.location": str(certificates.key_store),
        "singlenode.security.tls.keyStore.pwd.location": str(certificates.password),
        "singlenode.security.tls.trustStore.location": str(certificates.trust_store),
    }


def auth_settings(accounts: Sequence[Account], folder: Path) -> dict[str, str]:
    """Settings for passwords and, with them, delegation tokens; the server itself uses the first account."""
    database = folder / "accounts"
    database.write_text("".join(f"{each.user}:{_hashed(each.password)}:{each.rights};\n" for each in accounts))
    return {
        "singlenode.security.auth.enable": "true",
        "singlenode.security.auth.credentials.username": accounts[0].user,
        "singlenode.security.auth.credentials.pwd": accounts[0].password,
        "singlenode.security.auth.pwdAuthHandler.accountsDb.location": str(database),
    }


def _hashed(password: str) -> str:
    """The password as Pravega's accounts file wants it: PBKDF2, few rounds, and all of it written in hex again."""
    rounds = 1  # each call of a client is checked, and that many would be half of a test server's processor time
    salt = secrets.token_bytes(32)
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds, dklen=64)
    return f"{rounds}:{salt.hex()}:{digest.hex()}".encode().hex()
