"""Why a server died: its root line, and what its exit means."""
