"""Watches a server: log line → phase, exit, HTTP. Knows the engine by its protocol only."""
