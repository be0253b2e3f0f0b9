"""Evaluation, viewing and videos: what runs beside training."""
