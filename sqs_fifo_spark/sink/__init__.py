"""The sink: Spark writes to a FIFO queue. `writer` is what Spark calls; `write` does one write, on both sides."""
