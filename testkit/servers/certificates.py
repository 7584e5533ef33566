"""Certificates for a server on the loopback address: an authority of its own and what the authority signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = dt.timedelta(days=2)
# In one place the standalone Pravega opens its trust store with this one whatever its settings say, and with another
# one it starts a minute later.
STORE_PASSWORD = "1111_aaaa"


@dataclass(frozen=True)
class Certificates:
    """Files of one server.

    Attributes:
        authority: the authority's certificate (PEM): what a client is to trust.
        certificate: the server's certificate and the authority's (PEM).
        key: the server's private key (PKCS #8, PEM, not encrypted).
        key_store: key and certificates as a Java key store.
        trust_store: the authority's certificate as a Java trust store.
        password: the file with the stores' password.
    """

    authority: Path
    certificate: Path
    key: Path
    key_store: Path
    trust_store: Path
    password: Path


def make_certificates(folder: Path) -> Certificates:
    """Make the files in `folder`, for the names ``localhost`` and ``127.0.0.1``, valid for two days."""
    files = Certificates(
        authority=folder / "authority.pem",
        certificate=folder / "server.pem",
        key=folder / "server-key.pem",
        # Java's ZooKeeper goes by the ending; Java reads PKCS #12 under either
        key_store=folder / "server.jks",
        trust_store=folder / "trust.jks",
        password=folder / "store-password",
    )
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("Streamvault test authority", authority_key, None, authority_key)
    server = _certificate("localhost", server_key, authority, authority_key)

    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    files.authority.write_bytes(authority.public_bytes(Encoding.PEM))
    files.certificate.write_bytes(server.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM))
    files.key.write_bytes(server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    files.key_store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", server_key, server, [authority], encryption)
    )
    files.trust_store.write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"authority")], encryption)
    )
    files.password.write_text(STORE_PASSWORD)
    return files


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate for a server, signed by `issuer`; without an issuer, an authority's own."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # clocks of a test machine and its containers may differ a little
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=issuer is None,
                crl_sign=issuer is None,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if issuer is not None:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        # client too: the server's own parts show it to each other
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
