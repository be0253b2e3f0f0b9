"""Settings: dataclasses that are checked, written as JSON and shown as options."""
