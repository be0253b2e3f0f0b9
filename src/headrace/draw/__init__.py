"""Plans as text and pictures."""
