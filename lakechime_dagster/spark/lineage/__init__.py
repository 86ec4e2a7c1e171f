"""What Spark was asked to do: plans as data, out of the JVM; what they mean is told in `lineage`."""
