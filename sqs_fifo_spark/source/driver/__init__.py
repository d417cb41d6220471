"""The driver's side of the source: it announces epochs, plans them, and settles what Spark has committed."""
