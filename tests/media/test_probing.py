"""What a file is said to be, whatever it is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_vllm_docker.errors import BadMedia
from spark_vllm_docker.media.content import sniff
from spark_vllm_docker.media.cutting import cut_part, plan_parts
from spark_vllm_docker.media.probing import probe
from tests.media_files import ffmpeg, make_video


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"RIFF....WAVEfmt ", "audio/wav"),
        (b"RIFF....AVI LIST", "video/x-msvideo"),
        (b"\x00\x00\x00 ftypisom....", "video/mp4"),
        (b"\x00\x00\x00 ftypM4A ....", "audio/mp4"),
        (b"\x00\x00\x00 ftypqt  ....", "video/quicktime"),
        (b"\x00\x00\x00 ftypheic....", "image/heic"),
        (b"\x1a\x45\xdf\xa3....webm", "video/webm"),
        (b"\x1a\x45\xdf\xa3....matroska", "video/x-matroska"),
        (b"ID3\x04....", "audio/mpeg"),
        (b"\xff\xfb\x90\x44....", "audio/mpeg"),
        (b"fLaC....", "audio/flac"),
        (b"%PDF-1.7", "application/pdf"),
        (b"\x47" + b"x" * 187 + b"\x47", "video/mp2t"),
        ("grüße".encode(), "text/plain"),
    ],
)
def test_content_is_known_by_its_first_bytes(head: bytes, mime: str) -> None:
    content = sniff(head)
    assert content is not None
    assert content.mime == mime


@pytest.mark.parametrize(
    "head", [b"", b"\x00\x01\x02\x03", b"\xff\xff\xff\xff", b"\x7fELF\x02\x01"]
)
def test_what_is_nothing_is_nothing(head: bytes) -> None:
    assert sniff(head) is None


def test_a_video_with_and_without_sound(clips: Path) -> None:
    loud, silent = probe(clips / "loud.mp4"), probe(clips / "silent.mp4")
    assert (loud.kind, loud.mime, loud.has_sound) == ("video", "video/mp4", True)
    assert (silent.has_sound, silent.width, silent.height) == (False, 320, 240)
    assert loud.duration_s == pytest.approx(4, abs=0.2)
    assert probe(clips / "speech.wav").kind == "audio"
    assert probe(clips / "picture.png").kind == "image"


def test_names_are_not_believed(clips: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes((clips / "loud.mp4").read_bytes())
    assert probe(path).kind == "video"
    ffmpeg("-i", str(clips / "loud.mp4"), "-vn", "-c", "copy", str(tmp_path / "only.mp4"))
    assert (probe(tmp_path / "only.mp4").kind, probe(tmp_path / "only.mp4").mime) == (
        "audio",
        "audio/mp4",
    )


@pytest.mark.parametrize(
    "options",
    [
        "-c:v libx265 -preset ultrafast -pix_fmt yuv420p10le -x265-params log-level=none",
        "-c:v libvpx-vp9 -cpu-used 8 -deadline realtime",
        "-c:v mpeg4",
    ],
)
def test_other_codecs_and_ten_bits(tmp_path: Path, options: str) -> None:
    path = make_video(tmp_path / "v.mkv", 1, options=options)
    assert (probe(path).kind, probe(path).width) == ("video", 320)


def test_a_turned_video_is_as_wide_as_it_is_shown(clips: Path, tmp_path: Path) -> None:
    path = tmp_path / "turned.mp4"
    turn = ("-metadata:s:v:0", "rotate=90")
    ffmpeg("-i", str(clips / "silent.mp4"), "-c", "copy", *turn, str(path))
    assert (probe(path).width, probe(path).height) == (240, 320)


def test_a_variable_frame_rate_has_its_length(clips: Path, tmp_path: Path) -> None:
    path = tmp_path / "vfr.mp4"
    drop = "select='not(mod(n,3))+lt(t,1)'"
    ffmpeg("-i", str(clips / "silent.mp4"), "-vf", drop, "-fps_mode", "vfr", str(path))
    assert probe(path).duration_s == pytest.approx(4, abs=0.6)


def test_what_no_model_can_look_at_is_said(clips: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "cut.mp4").write_bytes((clips / "loud.mp4").read_bytes()[:2000])
    (tmp_path / "noise.mp4").write_bytes(bytes(range(256)) * 40)
    for name, told in {
        "empty.mp4": "is empty",
        "cut.mp4": "it is cut off or damaged",
        "noise.mp4": "is no picture, no sound, no video",
        "nowhere.mp4": "there is no such file",
        ".": "is a folder",
    }.items():
        with pytest.raises(BadMedia, match=told):
            probe(tmp_path / name)


def test_a_name_is_no_protocol_of_ffmpegs(clips: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.mp4"
    other.write_bytes((clips / "silent.mp4").read_bytes())
    for name in ("concat:other.mp4", "Lecture: Part 1.mp4", "-dash.mp4", "a%d\nb.mp4"):
        path = tmp_path / name
        path.write_bytes((clips / "loud.mp4").read_bytes())
        video = probe(path)
        assert (video.kind, video.has_sound) == ("video", True), name
        part = plan_parts(video, 3)[1]
        cut_part(video, part, tmp_path / f"out {name}.mp4")
        assert probe(tmp_path / f"out {name}.mp4").has_sound, name


@pytest.mark.parametrize(
    "text", ["BMW is a German maker of cars, and so on.", "ID3 tags are", "The free lunch", "RIFFs"]
)
def test_a_text_that_begins_like_something_else(text: str) -> None:
    content = sniff(text.encode() + b" " * 30)
    assert content is None or content.kind == "text"


def test_a_picture_that_begins_later_than_its_sound_loses_none(clips: Path, tmp_path: Path) -> None:
    path = tmp_path / "late.mkv"
    long = str(clips / "long.mp4")
    ffmpeg(
        "-itsoffset",
        "8",
        "-i",
        long,
        "-i",
        long,
        "-map",
        "0:v",
        "-map",
        "1:a",
        "-c",
        "copy",
        str(path),
    )
    video = probe(path)
    first = plan_parts(video, 30)[0]
    cut_part(video, first, tmp_path / "first.mkv")
    assert probe(tmp_path / "first.mkv").duration_s == pytest.approx(first.length, abs=1)


def test_a_video_with_one_key_frame_is_cut_all_the_same(tmp_path: Path) -> None:
    one = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -x264-params keyint=9999:scenecut=0"
    path = tmp_path / "one.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x120:r=4:d=60", *one.split(), str(path))
    video = probe(path)
    for part in plan_parts(video, 20):
        assert part.length <= 20
        cut_part(video, part, tmp_path / "part.mp4")
        assert probe(tmp_path / "part.mp4").duration_s == pytest.approx(part.length, abs=0.5)


def test_a_length_that_cannot_be_is_refused(clips: Path) -> None:
    with pytest.raises(BadMedia, match="more than 2000 parts"):
        plan_parts(replace(probe(clips / "loud.mp4"), duration_s=1e11), 600)
