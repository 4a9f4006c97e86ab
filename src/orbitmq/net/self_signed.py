"""The certificate of a server that was given none. Must not know where it is used."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID_DAYS = 3650  # it lives as long as the process; nobody should have to restart for it
CLOCK_LEEWAY = timedelta(days=1)  # peers whose clocks are behind


def certificate_and_key(names: tuple[str, ...] = ("localhost",), addresses: tuple[str, ...] = ("127.0.0.1",)) -> bytes:
    """Both as PEM, one behind the other; elliptic, because making such a key takes no time."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    alternatives = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in addresses)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_LEEWAY)
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
