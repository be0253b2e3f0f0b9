"""Data structures in memory that processes share, or in memory of one process: they work the same in both."""
