"""Engines: what can run a `ContainerSpec`. `docker.py` is the only importer of docker-py."""
