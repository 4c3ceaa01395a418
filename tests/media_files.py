"""Clips for tests, made by ffmpeg and espeak-ng."""

from __future__ import annotations

import subprocess
from pathlib import Path

SENTENCE = "This is the first sentence. And here, after a short pause, is a second one."


def ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-nostdin", "-y", "-v", "error", *arguments], check=True)


def make_speech(target: Path, text: str = SENTENCE) -> Path:
    """A spoken sentence at 22.05 kHz, which a server must resample, with a second of silence behind it."""
    raw = target.with_suffix(".raw.wav")
    subprocess.run(["espeak-ng", "-w", str(raw), text], check=True)
    ffmpeg("-i", str(raw), "-af", "apad=pad_dur=1", "-ar", "22050", "-ac", "1", str(target))
    raw.unlink()
    return target


def make_video(
    target: Path, seconds: float, *, sound: Path | None = None, rate: int = 12, options: str = ""
) -> Path:
    """A moving test picture, with a sound that is repeated."""
    inputs = ["-f", "lavfi", "-i", f"testsrc2=s=320x240:r={rate}:d={seconds}"]
    audio: list[str] = ["-an"]
    if sound is not None:
        inputs += ["-stream_loop", "-1", "-i", str(sound)]
        audio = ["-c:a", "aac", "-ac", "1"]
    video = options.split() or ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]
    ffmpeg(*inputs, "-t", str(seconds), *video, "-g", str(rate * 2), *audio, str(target))
    return target


def make_picture(target: Path) -> Path:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:r=1", "-frames:v", "1", str(target))
    return target
