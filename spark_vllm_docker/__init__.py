"""spark-recipe: a YAML recipe becomes a running, watched, proven vLLM container."""

__version__ = "0.1.0"
