"""Events of JSON told apart in Spark: each payload's type, producer and hashes, or why it waits."""
