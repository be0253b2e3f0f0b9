"""What executes a fragment, any fragment."""
