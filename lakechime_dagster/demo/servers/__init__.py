"""The servers of the demo's database, and of the tests: MariaDB, Kafka, Kafka Connect with Debezium, on loopback, without containers."""
