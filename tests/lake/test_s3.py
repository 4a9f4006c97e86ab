"""The variables of Amazon's tools say where a store is, to every library in its own words."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.lake.s3 import S3Address, s3_address


def test_every_library_is_told_the_same() -> None:
    address = s3_address({"AWS_ENDPOINT_URL": "http://minio:9000/", "AWS_DEFAULT_REGION": "eu-west-1"})
    assert address.arrow == {"region": "eu-west-1", "endpoint_override": "minio:9000", "scheme": "http"}
    assert address.delta == {
        "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://minio:9000/", "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    assert address.iceberg == {"s3.region": "eu-west-1", "s3.endpoint": "http://minio:9000/"}


def test_a_store_with_tls_is_not_talked_to_without() -> None:
    address = s3_address({"AWS_ENDPOINT_URL_S3": "https://s3.example", "AWS_ENDPOINT_URL": "http://other"})
    assert address == S3Address("https://s3.example", "us-east-1"), "a region is part of each signature"
    assert address.arrow["scheme"] == "https"
    assert "AWS_ALLOW_HTTP" not in address.delta


def test_credentials_are_left_to_the_libraries() -> None:
    secrets = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "hush"}
    assert s3_address(secrets) == S3Address()
    address = s3_address({**secrets, "AWS_REGION": "eu-west-1"})
    assert address.arrow == {"region": "eu-west-1"}
    assert address.delta == {"AWS_REGION": "eu-west-1"}
    assert address.iceberg == {"s3.region": "eu-west-1"}


@pytest.mark.parametrize("url", ["minio:9000", "ftp://minio", "http://", "http://minio/bucket"])
def test_an_address_that_is_no_url_is_named(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the environment variable AWS_ENDPOINT_URL is .*; use a URL without"):
        s3_address({"AWS_ENDPOINT_URL": url})
