"""What a client must know of a deployment, from its command and its mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.launcher.server_view import ServerView, view_deployment
from spark_vllm_docker.media.chat import Listed


def view(
    flags: str = "",
    image: str = "vllm/vllm-openai:v0.20.0",
    mounts: tuple[tuple[str, str], ...] = (),
    *,
    in_container: bool = True,
) -> ServerView:
    script = f"exec vllm serve nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4 {flags}\n"
    deployed = Deployed("i", "n", image, "running", {}, script=script, mounts=mounts)
    return view_deployment(deployed, Listed("m", "", 4096), {}, in_container=in_container)


def test_the_flags_of_the_command() -> None:
    found = view(
        """--max-num-seqs 3 --media-io-kwargs '{"video": {"fps": 2, "num_frames": 99}}' """
        "--video-pruning-rate 0.5"
    )
    assert (found.max_num_seqs, found.max_model_len) == (3, 4096)
    assert (found.video.fps, found.video.num_frames, found.video.pruning) == (2, 99, 0.5)
    assert found.counts_video


@pytest.mark.parametrize(
    ("image", "flags", "takes", "renders"),
    [
        ("vllm/vllm-openai:v0.20.0", "", True, True),
        ("vllm/vllm-openai:v0.32.0", "", False, False),
        ("vllm/vllm-openai:v0.32.0", "--trust-request-mm-kwargs", True, False),
        ("vllm/vllm-openai:v0.32.0", "--enable-scale-out", False, True),
        ("vllm-node-tf6-b12x", "", None, None),
    ],
)
def test_what_a_request_may_set(
    image: str, flags: str, takes: bool | None, renders: bool | None
) -> None:
    found = view(flags, image)
    assert (found.takes_kwargs, found.renders) == (takes, renders)


def test_files_that_the_server_can_read_itself(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in/a b.mp4"
    file.touch()
    allowed = "--allowed-local-media-path /media"
    inside = view(allowed, mounts=((str(tmp_path), "/media"),))
    assert inside.find_local_url(file) == "file:///media/in/a%20b.mp4"
    deeper = view("--allowed-local-media-path /media/in", mounts=((str(tmp_path), "/media"),))
    assert deeper.find_local_url(file) == "file:///media/in/a%20b.mp4"
    assert deeper.find_local_url(tmp_path / "other.mp4") == ""
    assert view(allowed).find_local_url(file) == ""
    assert view(mounts=((str(tmp_path), "/media"),)).find_local_url(file) == ""
    here = view(f"--allowed-local-media-path {tmp_path}", in_container=False)
    assert here.find_local_url(file) == file.as_uri()
    outside = tmp_path / "in/link.mp4"
    outside.symlink_to("/etc/hostname")
    assert inside.find_local_url(outside) == ""
