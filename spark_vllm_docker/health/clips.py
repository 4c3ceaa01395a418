"""The clips of the canaries; `data/clips/make` makes them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

SECONDS, FRAMES_PER_S, ASPECT = 2.0, 4.0, 320 / 240
"""Of the voice and of the videos."""
_FOLDER = Path(__file__).parent / "data/clips"


def load_clip(name: str) -> str:
    """A clip as a data URL."""
    kind = {"png": "image/png", "wav": "audio/wav", "mp4": "video/mp4"}[name.partition(".")[2]]
    return f"data:{kind};base64,{b64encode((_FOLDER / name).read_bytes()).decode()}"
