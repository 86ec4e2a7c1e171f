"""Where columns come from and who reads them: columns, edges, what a plan says of them, and what
follows from the graph.
"""
