"""Reads the flags of `vllm serve` from released wheels, without importing or running any of it.

`python -m spark_vllm_docker.catalog.extract WHEEL…` writes `catalog/data/flags.json`. The modules of
a wheel are parsed with `ast`, and the few functions that register arguments are walked statement
by statement while their effect is recorded.
"""
