"""The source: Spark reads a FIFO queue. Spark calls `reader`; `driver` and `partition` are its two sides."""
