"""The ffmpeg of this machine, else the one inside the imageio-ffmpeg wheel."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from spark_vllm_docker.errors import BadMedia, Refused

try:
    import imageio_ffmpeg
except ImportError:  # the system's own will do
    imageio_ffmpeg = None

LONGEST_S = 3600.0
_HEAD = ("-nostdin", "-hide_banner", "-y", "-protocol_whitelist", "file,pipe")


def find_ffmpeg() -> str:
    """Its path.

    Raises:
        Refused: there is none.
    """
    if found := shutil.which("ffmpeg"):
        return found
    if imageio_ffmpeg is not None:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    raise Refused(
        "there is no ffmpeg", hint="apt-get install ffmpeg, or pip install 'spark-recipe[media]'"
    )


def as_address(path: Path) -> str:
    """A path that is never taken for another protocol, an option or a pattern of ffmpeg's."""
    return f"file:{path.absolute()}"


def run_ffmpeg(*arguments: str) -> str:
    """Run it and return what it says.

    Raises:
        BadMedia: it fails; the last line that it says is the reason.
    """
    command = [find_ffmpeg(), *_HEAD, *arguments]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BadMedia(f"ffmpeg did not end within {LONGEST_S / 60:.0f} minutes") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        space = next((line for line in lines if "No space left" in line), "")
        raise BadMedia(f"ffmpeg failed: {space or (lines[-1] if lines else done.returncode)}")
    return done.stderr
