"""Compiles groups of pure nodes into programs; flat cells and random keys for them."""
