"""How a run comes by Spark: Java, jars, confs, and the driver that is attached to or started."""
