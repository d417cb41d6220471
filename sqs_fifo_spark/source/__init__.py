"""The source: Spark reads a FIFO queue. `reader` is what Spark calls; `driver` and `partition` are its two sides."""
