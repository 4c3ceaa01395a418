"""Clips that several tests of media look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.media_files import make_picture, make_speech, make_video


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    speech = make_speech(folder / "speech.wav")
    make_video(folder / "loud.mp4", 4, sound=speech)
    make_video(folder / "silent.mp4", 4)
    make_video(folder / "long.mp4", 60, sound=speech)
    make_picture(folder / "picture.png")
    return folder
