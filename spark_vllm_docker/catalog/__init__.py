"""Facts as data. Imports nothing of ours but errors and findings."""
