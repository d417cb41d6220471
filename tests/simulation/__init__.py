"""The whole protocol in one thread, on a hand-turned clock, with every step chosen from a seed."""
