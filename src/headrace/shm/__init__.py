"""Data structures in shared memory, or in memory of one process alone: whoever uses them sees no difference."""
