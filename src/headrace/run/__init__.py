"""A run: started, driven to its end, recorded in a directory, and loaded again."""
