"""The command `demo`: the package at work, shown on the local queue."""
