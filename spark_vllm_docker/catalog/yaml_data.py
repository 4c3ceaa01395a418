"""The YAML files of the catalogue, read with libyaml where PyYAML has it: ten times as fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

_DATA = Path(__file__).parent / "data"


def read_data(name: str) -> Any:
    """The contents of `data/NAME`."""
    return read_yaml(_DATA / name)


def read_yaml(path: Path) -> Any:
    """The contents of a file of ours."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
