"""What an analyzed plan of Spark says of columns: dumps in, statements out; the dumps themselves are made by `spark.lineage`."""
