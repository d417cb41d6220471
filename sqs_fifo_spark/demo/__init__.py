"""The command `demo`: what this package does, shown on the local queue."""
