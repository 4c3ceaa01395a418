"""`python -m spark_vllm_docker.catalog.extract WHEEL… [--add] [--out FILE]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from spark_vllm_docker.catalog.extract.fields import find_human_int
from spark_vllm_docker.catalog.extract.sets import read_sets
from spark_vllm_docker.catalog.extract.tree import Tree
from spark_vllm_docker.catalog.extract.walker import Walker, find_parser_factory
from spark_vllm_docker.catalog.flags import VersionFlags, pack_versions, unpack_versions

DATA = Path(__file__).resolve().parent.parent / "data/flags.json"


def extract(wheel: Path) -> VersionFlags:
    """The flags and sets of one released wheel.

    Raises:
        LookupError: it is not a vLLM wheel.
    """
    tree = Tree(wheel)
    arg_utils = tree.module("vllm.engine.arg_utils")
    if arg_utils is None:
        raise LookupError(f"{wheel}: no vllm/engine/arg_utils.py inside")
    walker = Walker(find_human_int(arg_utils))
    walker.run(*find_parser_factory(tree))
    flags: dict[str, Any] = {}
    for flag in sorted(walker.flags, key=lambda flag: str(flag["name"])):
        name = str(flag.pop("name"))
        if name.startswith("-"):
            flags[name] = flag
    return VersionFlags(tree.version(), flags, read_sets(tree))


def main() -> None:
    """Read the wheels and write the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--add", action="store_true", help="Keep the releases that are there.")
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    versions = {found.version: found for found in map(extract, arguments.wheels)}
    if arguments.add:
        there = json.loads(arguments.out.read_text(encoding="utf-8"))
        versions = unpack_versions(there) | versions
    packed = pack_versions(list(versions.values()))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in packed.items()
    )
    arguments.out.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    size = arguments.out.stat().st_size
    print(f"{len(versions)} versions, {size / 1000:.0f} kB in {arguments.out}")


if __name__ == "__main__":
    main()
