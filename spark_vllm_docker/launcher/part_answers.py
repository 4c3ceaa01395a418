"""What is wanted of a long video, and the answers to its parts that are there already.

The state is a folder beside the output: what is done, and each part's answer in a file of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from spark_vllm_docker.errors import BadMedia, Refused, say_reason
from spark_vllm_docker.media.content import Media
from spark_vllm_docker.media.cutting import Part
from spark_vllm_docker.media.notes import Mode

_EDGE = 1 << 20


@dataclass(frozen=True, slots=True)
class Watching:
    """What is wanted of a video. `part_s` is the longest part, and `segment` what the user said
    of it. `strict` spends more on whether the sound of each part was taken in.
    """

    video: Media
    mode: Mode
    prompt: str
    language: str
    part_s: float
    segment: str
    max_tokens: int
    use_sound: bool = True
    strict: bool = False


class Answers:
    """The folder of one run. A run on another video, or with another question, begins anew, with
    `anew` only where something is done already.

    Raises:
        Refused: what is done there would be lost.
        BadMedia: the folder cannot be written; the disk may be full.
    """

    def __init__(self, folder: Path, watching: Watching, model: str, *, anew: bool = False) -> None:
        self.folder = folder
        self.clips = folder / f"clips-{os.getpid()}"
        wanted = _describe(watching, model)
        self.parts: list[Part] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            _hold(self._lock, folder)
            for left in folder.glob("clips-*"):  # of a run that was killed
                if not Path(f"/proc/{left.name.partition('-')[2]}").exists():
                    shutil.rmtree(left, ignore_errors=True)
            found = self._read("state.json")
            if found.get("of") == wanted:
                self.parts = _read_parts(found.get("parts"), watching.video.duration_s)
            done = len(list(folder.glob("part-*.json")))
            if done and found.get("of", wanted) != wanted and not anew:
                told = f"{done} answers in {folder} are of another question or of other settings"
                raise Refused(told, hint="--out FILE, or --force asks for all of them anew")
            if not self.parts:
                for path in folder.glob("part-*"):
                    path.unlink()
        except OSError as error:
            raise BadMedia(f"{folder}: {say_reason(error)}") from error
        self._of = wanted

    def plan(self, parts: list[Part]) -> None:
        """Keep the parts of the video: a later run cuts at the same places."""
        self.parts = parts
        self._write("state.json", {"of": self._of, "parts": [asdict(part) for part in parts]})

    def forget(self) -> None:
        """The parts did not fit; nothing is done yet."""
        self.parts = []
        for path in self.folder.glob("part-*"):
            path.unlink(missing_ok=True)

    def find(self, part: Part) -> dict[str, Any] | None:
        """The answer to a part that is done."""
        found = self._read(self._name(part))
        return found if isinstance(found.get("answer"), str) else None

    def keep(self, part: Part, answer: str, sound: str, *, cut: bool) -> None:
        """Keep the answer to a part; `cut` says that it reached the limit of tokens."""
        self._write(self._name(part), {"answer": answer, "sound": sound, "cut": cut})

    def remove(self) -> None:
        """All is written elsewhere now."""
        for name in ("state.json", "lock"):
            (self.folder / name).unlink(missing_ok=True)
        for path in self.folder.glob("part-*"):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    @staticmethod
    def _name(part: Part) -> str:
        return f"part-{part.number:04}.json"

    def _read(self, name: str) -> dict[str, Any]:
        try:
            data = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        """Whole or not at all."""
        beside = self.folder / f".{name}.{os.getpid()}"
        try:
            beside.write_text(json.dumps(data), encoding="utf-8")
            beside.replace(self.folder / name)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise BadMedia(f"{self.folder}: {say_reason(error)}") from error


def _hold(lock: IO[str], folder: Path) -> None:
    """One run at a time; the lock ends with the process, however that ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Refused(
            f"another run works on {folder}", hint="wait for it, or --out FILE"
        ) from error


def _read_parts(found: Any, duration_s: float) -> list[Part]:
    """The parts of a state; none of one that is damaged: then all begins anew."""
    try:
        parts = [
            Part(
                int(p["number"]),
                start=float(p["start"]),
                end=float(p["end"]),
                from_s=float(p["from_s"]),
                encode=p["encode"],
            )
            for p in found
        ]
    except (TypeError, ValueError, LookupError, OverflowError):
        return []
    for number, part in enumerate(parts, start=1):
        ordered = 0 <= part.from_s <= part.start < part.end <= duration_s + 1
        if part.number != number or not ordered or not isinstance(part.encode, bool):
            return []
    return parts


def _describe(watching: Watching, model: str) -> str:
    """The video by its content at both ends, and the question."""
    video = watching.video
    digest = hashlib.sha256()
    with video.path.open("rb") as file:
        digest.update(file.read(_EDGE))
        file.seek(max(0, video.size - _EDGE))
        digest.update(file.read(_EDGE))
    asked = (watching.mode, watching.prompt, watching.language, watching.segment, model)
    digest.update(json.dumps([video.size, watching.use_sound, *asked]).encode())
    return digest.hexdigest()
