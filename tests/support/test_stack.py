"""The capture stack of the tests is made of real servers."""

import json

import pytest
from confluent_kafka import Consumer

from lakechime_dagster.demo.servers import Connect
from tests.support.kafka import Kafka
from tests.support.mariadb import MariaDB
from tests.support.processes import await_found
from tests.support.stack import debezium_settings


@pytest.mark.services
def test_a_row_of_mariadb_becomes_a_message_of_kafka(mariadb: MariaDB, connect: Connect, kafka: Kafka) -> None:
    session = mariadb.session()
    session.run("CREATE DATABASE stack", "CREATE TABLE stack.orders (id INT PRIMARY KEY)", "INSERT INTO stack.orders VALUES (7)")
    session.close()
    connect.create("stack", debezium_settings("stack", mariadb, kafka.address))
    topic = "stack.stack.orders"
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "stack", "auto.offset.reset": "earliest", "log_level": 2})
    await_found(
        lambda: topic in consumer.list_topics(timeout=10).topics, "the topic of the table", 60, lambda: connect.expect_health("stack")
    )
    consumer.subscribe([topic])
    (message,) = await_found(lambda: consumer.consume(1, 1), "the message of the row", 60, pause=0)
    consumer.close()
    connect.delete("stack")
    value = message.value()
    assert value is not None
    assert json.loads(value)["payload"]["after"] == {"id": 7}
