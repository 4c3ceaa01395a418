"""A long video → parts that fit: cut in silences, else where the scene changes, without decoding
the whole.

Parts are copies of the streams, so each begins at a key frame; it overlaps the one before it a
little, and no sentence is lost at a cut.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path

import av.error

from spark_vllm_docker.errors import BadMedia
from spark_vllm_docker.media.content import Media
from spark_vllm_docker.media.ffmpeg import as_address, run_ffmpeg
from spark_vllm_docker.media.probing import open_media

OVERLAP_S = 2.0
MOST_PARTS = 2000
WINDOW = 0.2
"""How far from an even cut, as a share of a part, a better place is looked for."""
SILENCE_DB, SILENCE_S = -35, 0.35
SCENE = 0.25
_COPY = ("-c", "copy")
_NUMBER = r"(-?\d+(?:\.\d+)?)"


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of the whole video. What is asked about begins at `start`, the file at `from_s`,
    which is a key frame at or before it; with `encode` it is none, because the last one is too
    far back to begin there.
    """

    number: int
    start: float
    end: float
    from_s: float
    encode: bool = False

    @property
    def length(self) -> float:
        """Seconds of the file."""
        return self.end - self.from_s


@dataclass(frozen=True, slots=True)
class Silence:
    """A pause: a good place for a cut is its middle."""

    start: float
    end: float

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2


def plan_parts(video: Media, longest_s: float) -> list[Part]:
    """The parts of a video, none longer than `longest_s` with its overlap.

    Raises:
        BadMedia: ffmpeg cannot read it.
    """
    if video.duration_s <= longest_s:
        return [Part(1, 0.0, video.duration_s, 0.0)]
    if video.duration_s / longest_s > MOST_PARTS:
        raise BadMedia(f"{video.path} would be cut into more than {MOST_PARTS} parts")
    keys = find_key_frames(video.path)
    longest = max(longest_s / 2, longest_s - OVERLAP_S - _largest_gap(keys, longest_s))
    silences = find_silences(video.path) if video.has_sound else []
    scenes = [] if silences else find_scenes(video.path)
    cuts = choose_cuts(video.duration_s, longest, silences, scenes)
    parts = []
    for number, (start, end) in enumerate(
        zip([0.0, *cuts], [*cuts, video.duration_s], strict=True), start=1
    ):
        wanted = max(0.0, start - OVERLAP_S) if start else 0.0
        key = _key_before(keys, wanted)
        far = wanted - key > longest_s / 3
        parts.append(Part(number, start, end, wanted if far else key, far))
    return parts


def choose_cuts(
    duration_s: float, longest_s: float, silences: Sequence[Silence], scenes: Sequence[float]
) -> list[float]:
    """Where to cut: into as few parts as can be, of about one length, none longer than `longest_s`;
    in the longest silence near the even cut, else at the scene change nearest to it.
    """
    cuts: list[float] = []
    start = 0.0
    while duration_s - start > longest_s:
        left = ceil((duration_s - start) / longest_s)
        even = start + (duration_s - start) / left
        reach = WINDOW * longest_s
        # What is left must fit the parts that are left.
        low = max(start + 1, even - reach, duration_s - (left - 1) * longest_s)
        high = min(start + longest_s, even + reach)
        if not any(low <= pause.middle <= high for pause in silences):
            # Rather one part more than a sentence cut in two.
            wide = (start + longest_s / 2, start + longest_s)
            if any(wide[0] <= pause.middle <= wide[1] for pause in silences):
                low, high = wide
        cuts.append(_best(even, low, high, silences, scenes))
        start = cuts[-1]
    return cuts


def _best(
    even: float, low: float, high: float, silences: Sequence[Silence], scenes: Sequence[float]
) -> float:
    pauses = [pause for pause in silences if low <= pause.middle <= high]
    if pauses:
        return max(pauses, key=lambda pause: min(pause.end - pause.start, 2.0)).middle
    changes = [at for at in scenes if low <= at <= high]
    return min(changes, key=lambda at: abs(at - even)) if changes else min(max(even, low), high)


def find_silences(path: Path) -> list[Silence]:
    """Pauses in the first sound track."""
    detect = f"silencedetect=noise={SILENCE_DB}dB:d={SILENCE_S}"
    told = run_ffmpeg(
        *("-i", as_address(path), "-map", "0:a:0", "-vn", "-af", detect), *("-f", "null", "-")
    )
    found: list[Silence] = []
    start: float | None = None
    for word, number in re.findall(rf"silence_(start|end): {_NUMBER}", told):
        if word == "start":
            start = float(number)
        elif start is not None:
            found.append(Silence(start, float(number)))
            start = None
    return found


def find_scenes(path: Path) -> list[float]:
    """Times of key frames at which the picture changes; encoders put key frames there."""
    changes = f"scale=160:-2,select='gt(scene,{SCENE})',showinfo"
    told = run_ffmpeg(
        *("-skip_frame", "nokey", "-i", as_address(path), "-map", "0:v:0", "-an", "-vf", changes),
        *("-fps_mode", "passthrough", "-f", "null", "-"),
    )
    return [float(number) for number in re.findall(rf"pts_time:\s*{_NUMBER}", told)]


def find_key_frames(path: Path) -> list[float]:
    """Times of key frames, from the packets alone."""
    try:
        with path.open("rb") as file, open_media(file) as container:
            stream = container.streams.video[0]
            first = float((stream.start_time or 0) * (stream.time_base or 0))
            return sorted(
                float(packet.pts * packet.time_base) - first
                for packet in container.demux(stream)
                if packet.is_keyframe and packet.pts is not None and packet.time_base
            )
    except av.error.FFmpegError as error:
        raise BadMedia(f"{path} cannot be read: {error}") from error


def cut_part(video: Media, part: Part, target: Path) -> None:
    """Write one part.

    Raises:
        BadMedia: ffmpeg fails; the disk may be full.
    """
    # A little behind the key frame: seeking goes back to it, and not to the one before. The first
    # part is not sought at all: a picture may begin later than its sound.
    seek = ("-ss", f"{part.from_s + (0 if part.encode else 0.01):.3f}") if part.from_s else ()
    codecs = ("-c:v", "libx264", "-preset", "veryfast", "-c:a", "copy") if part.encode else _COPY
    run_ffmpeg(
        *(*seek, "-i", as_address(video.path), "-t", f"{part.length:.3f}"),
        *("-map", "0:v:0", "-map", "0:a:0?", *codecs, "-avoid_negative_ts", "make_zero"),
        as_address(target),
    )


def part_suffix(video: Media) -> str:
    """The container that takes copies of the streams of a video."""
    if video.mime in ("video/mp4", "video/quicktime"):
        return ".mp4"
    return ".webm" if video.mime == "video/webm" else ".mkv"


def _key_before(keys: Sequence[float], wanted: float) -> float:
    at = bisect_right(keys, wanted + 0.001)
    return max(0.0, keys[at - 1]) if at else 0.0


def _largest_gap(keys: Sequence[float], longest_s: float) -> float:
    """How much longer a part may get because it begins at a key frame; a file with hardly any is
    not cut into nothing for it.
    """
    gaps = [after - before for before, after in pairwise(keys)]
    return min(max(gaps, default=0.0), longest_s / 3)
