"""A certificate authority of its own for each served cluster, and a server certificate for loopback."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

_VALIDITY = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts: what clients trust, and what the server shows."""

    authority: bytes
    server: bytes
    server_key: bytes

    def server_context(self, folder: Path) -> ssl.SSLContext:
        """A TLS context; the key touches the disk only inside the given private folder, and not for long."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        chain, key = folder / "server.crt", folder / "server.key"
        key.touch(mode=0o600)
        key.write_bytes(self.server_key)
        chain.write_bytes(self.server)
        try:
            context.load_cert_chain(chain, key)
        finally:
            key.unlink()
            chain.unlink()
        return context


def make_certificates() -> Certificates:
    """Fresh keys and certificates for 127.0.0.1, ::1 and localhost."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.now(UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def name(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    def builder(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("pykarpenter embedded cluster"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _VALIDITY)
        )

    authority = (
        builder("pykarpenter embedded cluster", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    server = (
        builder("kube-apiserver", server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Certificates(
        authority.public_bytes(Encoding.PEM),
        server.public_bytes(Encoding.PEM),
        server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
