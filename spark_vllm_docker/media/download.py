"""A URL → a file: of a direct link, else, of a video site, through yt-dlp if it is installed."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import httpx

from spark_vllm_docker.errors import BadMedia, say_reason
from spark_vllm_docker.media.content import HEAD_BYTES, sniff

CONNECT_S, SILENCE_S = 10.0, 30.0
MOST_REDIRECTS = 5
LONGEST_S = 3600.0


def fetch(url: str, folder: Path) -> Path:
    """Download a file.

    Raises:
        BadMedia: it does not answer, stalls, or is a page and no file.
    """
    target = folder / "download"
    limits = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
    began = time.monotonic()
    try:
        with (
            httpx.Client(
                follow_redirects=True, max_redirects=MOST_REDIRECTS, timeout=limits
            ) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise BadMedia(f"{url} answers {response.status_code}")
            with target.open("wb") as file:
                for chunk in response.iter_bytes(1 << 20):
                    file.write(chunk)
                    if time.monotonic() - began > LONGEST_S:
                        raise BadMedia(f"{url} did not come within an hour")
    except httpx.TimeoutException as error:
        raise BadMedia(f"{url} sent nothing for {SILENCE_S:.0f} s") from error
    except httpx.TooManyRedirects as error:
        raise BadMedia(f"{url} redirects more than {MOST_REDIRECTS} times") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise BadMedia(f"{url}: {str(error) or type(error).__name__}") from error
    except OSError as error:
        raise BadMedia(f"{target}: {say_reason(error)}") from error
    with target.open("rb") as file:
        head = file.read(HEAD_BYTES)
    content = sniff(head)
    if content is not None and content.kind == "text" and b"<" in head[:200]:
        return _fetch_from_site(url, folder)
    return target


def _fetch_from_site(url: str, folder: Path) -> Path:
    tool = shutil.which("yt-dlp")
    if tool is None:
        raise BadMedia(
            f"{url} is a page and no file",
            hint="pip install yt-dlp gets videos from sites; or give the direct link of the file",
        )
    wanted = "bv*[height<=720][vcodec^=avc]+ba[ext=m4a]/b[height<=720]/b"
    command = [tool, "--no-playlist", "-f", wanted, "-o", str(folder / "video.%(ext)s"), "--", url]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BadMedia(f"{url} did not come within an hour") from error
    found = sorted(folder.glob("video.*"))
    if done.returncode != 0 or not found:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        raise BadMedia(f"yt-dlp does not get {url}: {lines[-1][:200]}")
    return found[0]
