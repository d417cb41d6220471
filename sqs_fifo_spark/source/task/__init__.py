"""The tasks' side of the source: a partition serves its chain, and an attempt appends to it."""
