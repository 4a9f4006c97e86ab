"""TLS contexts out of files, and the one a server uses now. Must not know connections.

Files that change are read again: connections made later get the new certificate, those there are keep theirs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orbitmq.errors import ConfigurationError
from orbitmq.net.tls_options import DISABLED, ENFORCING, TlsOptions

_log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # how late a replaced certificate is used; RocketMQ looks every 0.5 s
VALID_DAYS = 3650  # of a self-signed certificate, which is valid as long as the process runs: it is not renewed
CLOCK_LEEWAY = timedelta(days=1)  # for peers whose clocks are behind
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}

Signature = tuple[tuple[int, int, int], ...]


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """A context of the configured files. ConfigurationError names the option and the cause."""
    context = _server_context()
    _load_certificate(context, "tls.server", options.cert_path, options.key_path, options.key_password)
    if options.verify_clients:
        _load_trusted(context, "tls.server.trustCertPath", options.trust_path)
        context.verify_mode = _VERIFY[options.client_auth]
    elif options.client_auth == "require":
        raise ConfigurationError(
            "option tls.server.need.client.auth: value 'require' is not allowed without tls.server.authClient=true: "
            "a certificate that is not checked proves nothing"
        )
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of a broker's connections to name servers; host names are not compared, as in RocketMQ."""
    verify = options.verify_servers and not options.test_mode
    return outgoing_context(
        verify=verify,
        check_host=False,
        trusted=options.client_trust_path,
        certificate=options.client_cert_path,
        key=options.client_key_path,
        password=options.client_key_password,
    )


def outgoing_context(
    *, verify: bool, check_host: bool, trusted: str, certificate: str = "", key: str = "", password: str = ""
) -> ssl.SSLContext:
    """The context of a client. Empty `trusted` means the authorities this machine trusts. ConfigurationError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify and check_host
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify:
        _load_trusted(context, "tls.client.trustCertPath", trusted)
    if certificate:
        _load_certificate(context, "tls.client", certificate, key, password)
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # nothing but records of data after the handshake
    return context


def _server_context() -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])  # gRPC's clients insist on it; those of remoting ask for nothing
    return context


def _load_certificate(context: ssl.SSLContext, prefix: str, cert: str, key: str, password: str) -> None:
    for name, path in ((f"{prefix}.certPath", cert), (f"{prefix}.keyPath", key)):
        if path and not Path(path).expanduser().is_file():
            raise ConfigurationError(f"option {name}: {path} is not a file")
    try:
        # A password callback keeps OpenSSL from prompting on the terminal.
        context.load_cert_chain(
            Path(cert).expanduser(), Path(key).expanduser() if key else None, password=lambda: password
        )
    except (OSError, ValueError) as error:
        pair = f"{cert} with the key of {key or cert}"
        raise ConfigurationError(f"option {prefix}.certPath: {pair} cannot be used: {_reason(error)}") from error


def _load_trusted(context: ssl.SSLContext, name: str, path: str) -> None:
    if not path:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(Path(path).expanduser())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"option {name}: {path} cannot be used: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM, or a wrong password").lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class ServerTls:
    """Mode and certificate of a server. `load` before use; `start` keeps looking for changed files until `stop`."""

    def __init__(self, options: TlsOptions) -> None:
        self._options = options
        self._context: ssl.SSLContext | None = None
        self._making: asyncio.Task[ssl.SSLContext] | None = None
        self._seen: Signature = ()
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_off(self) -> bool:
        """Whether only plain connections are taken."""
        return self._options.mode == DISABLED

    @property
    def is_required(self) -> bool:
        """Whether plain connections are turned away."""
        return self._options.mode == ENFORCING

    @property
    def ready(self) -> ssl.SSLContext | None:
        """The context that counts now, if it is made already."""
        return self._context

    async def context(self) -> ssl.SSLContext | None:
        """The same; in test mode without a certificate one is made on first use. None: no TLS here."""
        if self._context is not None or not self._options.test_mode:
            return self._context
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(asyncio.to_thread(self_signed_context))
        self._context = await asyncio.shield(self._making)
        return self._context

    def load(self) -> None:
        """Read the files. ConfigurationError when they cannot be used, or are missing where TLS is required."""
        options = self._options
        if self.is_off:
            return
        if options.cert_path:
            self._seen = self._signature()
            self._context = server_context(options)
        elif not options.test_mode:
            if self.is_required:
                raise ConfigurationError("option tls.server.certPath: tls.server.mode enforcing needs a certificate")
            _log.warning("event=tls_not_offered reason=no tls.server.certPath")

    def start(self) -> None:
        if self._options.cert_path and not self.is_off and self._watch is None:  # several servers may share it
            self._watch = asyncio.get_running_loop().create_task(self._reload_regularly())

    async def stop(self) -> None:
        tasks = [task for task in (self._watch, self._making) if task is not None]
        self._watch = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reload_regularly(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Reload the files if one has changed. If they do not match, as in the middle of a replacement, the old
        certificate stays, and the reason is logged once.
        """
        seen = self._signature()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._context = server_context(self._options)
            _log.info("event=certificate_loaded file=%s", self._options.cert_path)
        except ConfigurationError as error:
            _log.error("event=certificate_kept reason=%s", error)

    def _signature(self) -> Signature:
        found = []
        for path in filter(None, (self._options.cert_path, self._options.key_path, self._options.trust_path)):
            try:
                status = Path(path).expanduser().stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)


def self_signed_context() -> ssl.SSLContext:
    """A context with a new self-signed certificate: it encrypts, but proves no identity."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.pem"  # OpenSSL's binding takes files only
        path.touch(mode=0o600)
        path.write_bytes(_self_signed_certificate())
        context = _server_context()
        context.load_cert_chain(path)
    _log.info("event=certificate_made reason=no tls.server.certPath")
    return context


def _self_signed_certificate() -> bytes:
    """Certificate and key for localhost as PEM, one after the other; elliptic, because such a key is made at once."""
    from cryptography import x509  # a large library that few servers need
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    alternatives = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
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
