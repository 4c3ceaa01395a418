"""Where the files that ship beside the code are: `recipes/` and `launch/`.

In a checkout they are the top-level folders; in a wheel they lie inside the package.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def find_shipped(folder: str) -> Path:
    """The path of `recipes` or `launch`."""
    packed = _PACKAGE / "_shipped" / folder
    return packed if packed.is_dir() else _PACKAGE.parent / folder
