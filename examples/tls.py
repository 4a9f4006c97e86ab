"""Encrypt every connection, and check who is at the other end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orbitmq.client import ClientError, Message, Producer
from orbitmq.testing import Cluster

TOPIC = "ExampleTls"


async def main(cluster: Cluster, certificate: Path) -> None:
    address = cluster.namesrv_address
    # tls_ca_file names the certificate of whoever signed those of brokers and name servers
    async with Producer("example-tls", address, tls=True, tls_ca_file=str(certificate)) as producer:
        print(f"encrypted and checked: {(await producer.send(Message(TOPIC, b'...'))).status.name}")
    for why, tls in (("signed by a stranger", True), ("without TLS", False)):
        async with Producer("example-tls", address, tls=tls) as producer:
            try:
                await producer.send(Message(TOPIC, b"..."))
            except ClientError as error:
                print(f"{why}: refused with code {error.code}")


def make_certificate(path: Path) -> Path:
    """One for 127.0.0.1, signed by itself, with its key; usually somebody else's work."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "example")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
    signed = builder.not_valid_after(now + timedelta(days=1)).add_extension(address, critical=False)
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.sign(key, hashes.SHA256()).public_bytes(pem)
    )
    return path


logging.getLogger("orbitmq").setLevel(logging.CRITICAL)  # the refusals are wanted here
with tempfile.TemporaryDirectory() as directory:
    file = make_certificate(Path(directory) / "server.pem")
    options = {"tls.server.mode": "enforcing", "tls.server.certPath": file, "tls.server.keyPath": file}
    with Cluster(options=options) as started:
        asyncio.run(main(started, file))
