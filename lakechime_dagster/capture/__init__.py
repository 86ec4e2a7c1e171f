"""A lake table's own log turned into data change events, without Spark; a module per format."""
