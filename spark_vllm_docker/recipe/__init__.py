"""Text → `Recipe`. Reads files; starts nothing and asks no engine."""
