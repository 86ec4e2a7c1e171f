"""The settings of a Kafka feed in the words of the two clients that need them: librdkafka asks it, Java's reads it in Spark."""

import re
from collections.abc import Mapping

from lakechime_dagster.lake.feeds import KafkaTopic
from lakechime_dagster.lake.variables import is_variable, resolved

_SECRET = re.compile(r"password|secret|jaas|token|\bkey\b", re.IGNORECASE)
_LOGIN = "org.apache.kafka.common.security"


def options_of(feed: KafkaTopic, environment: Mapping[str, str]) -> dict[str, str]:
    """The options of a feed, with what the environment says for each `$NAME`.

    Raises:
        InvalidValueError: It says nothing for one of them.
    """
    return {name: resolved(value, environment, f"{feed}, options[{name!r}]") for name, value in feed.options.items()}


def librdkafka_settings(feed: KafkaTopic, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of a client from confluent-kafka."""
    return {"bootstrap.servers": feed.bootstrap, **options_of(feed, environment)}


def java_settings(feed: KafkaTopic, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of a client from Kafka's own library, which takes a login as one text, and certificates as a store."""
    options = options_of(feed, environment)
    user, password = options.pop("sasl.username", None), options.pop("sasl.password", None)
    mechanism = options.pop("sasl.mechanisms", None) or options.get("sasl.mechanism")
    if mechanism:
        options["sasl.mechanism"] = mechanism
    if user is not None and password is not None:
        module = "scram.ScramLoginModule" if (mechanism or "").startswith("SCRAM") else "plain.PlainLoginModule"
        options["sasl.jaas.config"] = f"{_LOGIN}.{module} required username={_quoted(user)} password={_quoted(password)};"
    if authorities := options.pop("ssl.ca.location", None):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authorities}
    return {"bootstrap.servers": feed.bootstrap, **options}


def without_secrets(text: str, feed: KafkaTopic, environment: Mapping[str, str]) -> str:
    """What a client said, without what its options hide: values from the environment, and of names that tell of a secret."""
    for name, value in options_of(feed, environment).items():
        if value and (is_variable(feed.options[name]) or _SECRET.search(name)):
            text = text.replace(value, "***")
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
