from __future__ import annotations

import pytest

from spark_vllm_docker.engine.protocol import PullProgress
from spark_vllm_docker.engine.pull import read_pull
from spark_vllm_docker.errors import ImageMissing, NoSpace, PullFailed


def message(status: str, layer: str = "a", current: int = 0, total: int = 0) -> dict[str, object]:
    return {"status": status, "id": layer, "progressDetail": {"current": current, "total": total}}


def test_layers_and_bytes_add_up() -> None:
    stream: list[dict[str, object]] = [
        {"status": "Pulling from x/y", "id": "latest"},
        message("Pulling fs layer", "a"),
        message("Pulling fs layer", "b"),
        message("Already exists", "c"),
        message("Downloading", "a", 50, 100),
        message("Downloading", "b", 10, 20),
        message("Download complete", "a"),
        message("Extracting", "a", 30, 100),
        message("Pull complete", "a"),
        {"status": "Digest: sha256:00"},
        {"status": "Status: Downloaded newer image"},
    ]
    progress = list(read_pull("x/y", stream))
    assert progress[-1] == PullProgress(2, 3, 110, 120)
    assert len(set(progress)) == len(progress)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("manifest for x:y not found: manifest unknown", ImageMissing),
        ("pull access denied for x, repository does not exist", ImageMissing),
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", NoSpace),
        ("error pulling image: unexpected EOF", PullFailed),
    ],
)
def test_an_error_inside_the_stream_ends_the_pull(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="x:y"):
        list(read_pull("x:y", [message("Pulling fs layer"), {"error": text}]))
