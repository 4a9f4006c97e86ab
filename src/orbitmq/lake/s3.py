"""Where a store of the S3 protocol is, as each library of a lake wants to know it.

Address and region come from the environment variables that Amazon's own tools read, on the driver and on the executors.
Credentials are not handled here: Arrow, deltalake and pyiceberg look for them where Amazon's tools do (variables,
profiles, roles of machines and pods), so that no option and no plan of Spark contains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from orbitmq.errors import ConfigurationError

SCHEME = "s3://"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # the first goes before the second
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
ANY_REGION = "us-east-1"  # stores that are not Amazon's take any, but it is part of each signature


@dataclass(frozen=True)
class S3Address:
    """The URL of a store, empty for Amazon's, and the region, empty if it is to be found out."""

    endpoint: str = ""
    region: str = ""

    @property
    def arrow(self) -> dict[str, str]:
        """Arguments of Arrow's `S3FileSystem`."""
        scheme, _, host = self.endpoint.partition("://")
        return _filled({"region": self.region, "endpoint_override": host.rstrip("/"), "scheme": scheme if host else ""})

    @property
    def delta(self) -> dict[str, str]:
        """Storage options of deltalake. It connects without TLS only if that is allowed."""
        allowed = "true" if self.endpoint.startswith("http://") else ""
        return _filled({"AWS_REGION": self.region, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": allowed})

    @property
    def iceberg(self) -> dict[str, str]:
        """Properties of pyiceberg's catalogs."""
        return _filled({"s3.region": self.region, "s3.endpoint": self.endpoint})


def s3_address(environment: Mapping[str, str]) -> S3Address:
    """What the variables say. ConfigurationError for an address that is no URL."""
    named = next((name for name in ENDPOINTS if environment.get(name)), "")
    endpoint = environment.get(named, "")
    parts = urlsplit(endpoint)
    if endpoint and (parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/")):
        raise ConfigurationError(
            f"the environment variable {named} is {endpoint!r}; use a URL without a path, such as https://minio:9000"
        )
    region = next((environment[name] for name in REGIONS if environment.get(name)), "")
    return S3Address(endpoint, region or (ANY_REGION if endpoint else ""))


def _filled(pairs: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in pairs.items() if value}
