"""The options of reads and writes that reach a cluster, and the parser for options of a DataFrame."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.runtime.options import Options, option
from orbitmq.spark.channel import Protection
from orbitmq.wire.signature import Credentials


@dataclass(frozen=True)
class ClusterOptions(Options):
    """How the cluster is reached."""

    name_server: str = option("nameServer", "", "Addresses of the name servers, `host:port;host:port`. Required.")
    access_key: str = option("accessKey", "", "Account that signs every request. Empty signs none.")
    secret_key: str = option("secretKey", "", "Secret of the account.", secret=True)
    use_tls: bool = option("useTLS", False, "Use TLS for every connection.")
    verify_servers: bool = option("tls.client.authServer", True, "Verify the certificates of servers.")
    check_host: bool = option(
        "tls.client.checkHost", True, "Also check that a certificate is for the host that was connected to."
    )
    trusted: str = option(
        "tls.client.trustCertPath",
        "",
        "File with the certificate authorities to trust, on the driver and on every executor. Empty trusts those of "
        "the machine.",
    )

    @property
    def name_servers(self) -> tuple[str, ...]:
        return parts(self.name_server.replace(",", ";"), ";")

    @property
    def protection(self) -> Protection:
        """How connections are protected."""
        credentials = Credentials(self.access_key, self.secret_key) if self.access_key else None
        return Protection(credentials, self.use_tls, self.verify_servers, self.check_host, self.trusted)


# While a table is made, Spark passes its properties among the options, and its options twice, once with this prefix.
TABLE_OPTION = "option."
TABLE_PROVIDER = "provider"
NO_TABLES = (
    "CREATE TABLE: Spark passes the options of a table of a Python data source to none of its queries; make a view "
    "with orbitmq.spark.create_view or CREATE TEMPORARY VIEW name USING format OPTIONS (...)"
)

T = TypeVar("T", bound=ClusterOptions)
AnyOptions = TypeVar("AnyOptions", bound=Options)


def parts(text: str, separator: str) -> tuple[str, ...]:
    """The items of a list in an option."""
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def parse_options(kind: type[T], given: Mapping[str, str], foreign: Mapping[str, str]) -> T:
    """Parse the options of a read or write of a cluster, as `parse_declared`."""
    options = parse_declared(kind, given, foreign)
    if not options.name_servers:
        text = "option nameServer is missing; set it to the addresses of the name servers, `host:port;host:port`"
        raise missing_option(text, given)
    if bool(options.access_key) != bool(options.secret_key):
        raise bad_option("options accessKey and secretKey: set both or none")
    return options


def parse_declared(kind: type[AnyOptions], given: Mapping[str, str], foreign: Mapping[str, str]) -> AnyOptions:
    """Parse options of a DataFrame. Names are not case-sensitive. SourceError names the invalid option.

    `foreign` maps option names of other sources to a hint what to use instead.
    """
    if any(key.lower().startswith(TABLE_OPTION) or key.lower() == TABLE_PROVIDER for key in given):
        raise bad_option(NO_TABLES)
    spelling = {key.lower(): key for key in kind.table()}
    for key in given:
        if key.lower() not in spelling:
            raise bad_option(f"option {key} is unknown; {_hint(key.lower(), spelling, foreign)}")
    try:
        return kind.parse({spelling[key.lower()]: value for key, value in given.items()})
    except ConfigurationError as error:
        raise bad_option(str(error)) from error


def _hint(key: str, spelling: Mapping[str, str], foreign: Mapping[str, str]) -> str:
    if key in foreign:
        return foreign[key]
    near = difflib.get_close_matches(key, spelling, 1)
    return f"did you mean {spelling[near[0]]}?" if near else f"the options are {', '.join(spelling.values())}"


def missing_option(text: str, given: Mapping[str, str]) -> SourceError:
    """The error for an option that is required. Without any options it also explains tables, which have none."""
    return bad_option(text if given else f"{text}. For a table of {NO_TABLES}")


def bad_option(text: str) -> SourceError:
    """The error for an invalid option, which `text` names."""
    return SourceError("ORBITMQ_BAD_OPTION", text)
