"""The sink: Spark writes to a FIFO queue. Spark calls `writer`; `write` does one write, on both sides."""
