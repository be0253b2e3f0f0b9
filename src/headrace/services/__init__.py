"""Evaluation, records, checkpoints, the display: what stands beside training."""
