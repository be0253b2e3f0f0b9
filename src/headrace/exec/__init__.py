"""Executes fragments: the runner and the sections it runs."""
