"""What carries data between the fragments of a plan, and keeps the ledger of a run."""
