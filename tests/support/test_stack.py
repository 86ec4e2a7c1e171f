"""The capture stack of the tests is made of real servers."""

import json

import pytest
from confluent_kafka import Consumer

from tests.support.kafka import Connect, Kafka
from tests.support.mariadb import CAPTURE_USER, MariaDB
from tests.support.processes import await_found


@pytest.mark.services
def test_a_row_of_mariadb_becomes_a_message_of_kafka(mariadb: MariaDB, connect: Connect, kafka: Kafka) -> None:
    session = mariadb.session()
    session.run("CREATE DATABASE stack", "CREATE TABLE stack.orders (id INT PRIMARY KEY)", "INSERT INTO stack.orders VALUES (7)")
    session.close()
    connect.create("stack", {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "tasks.max": "1", "topic.prefix": "test-stack",
        "database.hostname": "127.0.0.1", "database.port": str(mariadb.port), "database.user": CAPTURE_USER,
        "database.password": CAPTURE_USER, "database.server.id": "900", "database.include.list": "stack",
        "schema.history.internal.kafka.bootstrap.servers": kafka.address, "schema.history.internal.kafka.topic": "test-stack-history",
    })  # fmt: skip
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "stack", "auto.offset.reset": "earliest", "log_level": 2})
    await_found(
        lambda: "test-stack.stack.orders" in consumer.list_topics(timeout=10).topics,
        "the topic of the table", 60, lambda: connect.expect_health("stack"),
    )  # fmt: skip
    consumer.subscribe(["test-stack.stack.orders"])
    message = await_found(lambda: consumer.poll(1), "the message of the row", 60, pause=0)
    consumer.close()
    connect.delete("stack")
    value = message.value()
    assert value is not None
    assert json.loads(value)["payload"]["after"] == {"id": 7}
