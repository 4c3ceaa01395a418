"""spark-recipe: a YAML recipe becomes a running, watched, proven vLLM container."""

__version__ = "0.1.0"

STEP_MARK = "spark-recipe: "
"""Begins the line with which the script in a container tells which step or mod ended it."""
