"""What errors show of values from outside."""

import pytest

from lakechime_dagster.errors import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://AKIA:hunter2@bucket/orders", "s3://AKIA:***@bucket/orders"),
        (
            "https://acct.blob.core.windows.net/c?sv=1&sig=hunter2",
            "https://acct.blob.core.windows.net/c?sv=1",
        ),
        (
            "https://acct.blob.core.windows.net/c?sig=hunter2/bronze/orders",
            "https://acct.blob.core.windows.net/c",
        ),
        (
            "https://bucket/orders?X-Amz-Signature=hunter2&X-Amz-Security-Token=hunter2&X-Amz-Credential=hunter2",
            "https://bucket/orders",
        ),
        (
            "gs://bucket/orders?access%5FTOKEN=hunter2&aws_secret_access_key=hunter2",
            "gs://bucket/orders",
        ),
        (
            "postgresql://ada:hunter2@db/dce?sslmode=require&password=hunter2",
            "postgresql://ada:***@db/dce?sslmode=require",
        ),
        (
            "abfss://container@account.dfs.core.windows.net/orders",
            "abfss://container@account.dfs.core.windows.net/orders",
        ),
        ("/srv/lake/a:b@c", "/srv/lake/a:b@c"),
    ],
)
def test_a_url_is_shown_without_what_is_secret_in_it(url: str, shown: str) -> None:
    assert without_password(url) == shown
