"""Fabrics, which carry data between the fragments of a plan, and the ledger of a run."""
