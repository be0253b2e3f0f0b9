"""Programs: groups of pure nodes as compiled functions, the cells they take, the random keys they follow."""
