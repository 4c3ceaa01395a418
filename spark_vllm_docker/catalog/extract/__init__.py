"""Reads the flags of `vllm serve` from released wheels, and neither imports nor runs any of it.

`python -m spark_vllm_docker.catalog.extract WHEEL…` writes `data/flags.json`. The modules of
a wheel are parsed with `ast`, and the few functions that register arguments are walked statement
by statement while their effect is recorded.
"""
