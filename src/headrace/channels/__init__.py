"""How data crosses a cut."""
