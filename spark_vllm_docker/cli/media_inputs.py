"""The files that `ask` and `watch` were given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_vllm_docker.media.content import Media

NEEDS = "pip install 'spark-recipe[media]'"
MOST_TEXT_BYTES = 1 << 20


def is_url(source: str) -> bool:
    """Whether a file or a server is named by its address."""
    return source.startswith(("http://", "https://"))


def require_media() -> None:
    """The libraries of the extra are there.

    Raises:
        Refused: they are not.
    """
    from spark_vllm_docker.errors import Refused

    try:
        import av  # noqa: F401
    except ImportError as error:
        raise Refused("PyAV, which looks into sound and video, is missing", hint=NEEDS) from error


def gather(named: dict[str, tuple[str, ...]], folder: Path) -> tuple[tuple[Media, ...], str]:
    """The files of `--image`, `--audio`, `--video` and `--file`, URLs fetched and PDFs drawn into
    `folder`; and the text of text files.

    Raises:
        BadMedia: one of them is not what it is called, or cannot be read.
    """
    found: list[Media] = []
    texts: list[str] = []
    for option, sources in named.items():
        for number, source in enumerate(sources):
            media = look_at(source, folder / f"{option}-{number}")
            if media.kind == "pdf" and option in ("file", "image"):
                found += _draw(media.path, folder / f"{option}-{number}")
            elif media.kind == "text" and option == "file":
                texts.append(_read_text(source, media))
            else:
                found.append(_as_option(option, source, media))
    return tuple(found), "\n\n".join(texts)


def look_at(source: str, folder: Path) -> Media:
    """A file, or what a URL gives, downloaded into `folder`, which is made."""
    from spark_vllm_docker.media.probing import probe

    if is_url(source):
        from spark_vllm_docker.media.download import fetch

        folder.mkdir()
        return probe(fetch(source, folder))
    return probe(Path(source))


def _as_option(option: str, source: str, media: Media) -> Media:
    """A file under `--video` that has no picture is a mistake; one with sound may be heard."""
    from dataclasses import replace

    from spark_vllm_docker.errors import BadMedia

    if option in ("file", media.kind):
        return media
    if option == "audio" and media.kind == "video" and media.has_sound:
        return replace(media, kind="audio", mime=media.mime.replace("video/", "audio/"))
    if option == "audio" and media.kind == "video":
        raise BadMedia(f"{source} is a video without sound")
    what = {"image": "a picture", "audio": "sound alone", "video": "a video"}
    told = what.get(media.kind, f"a {media.kind} file")
    right = media.kind if media.kind in what else "file"
    raise BadMedia(f"{source} is {told}", hint=f"--{right} {source}")


def _draw(path: Path, folder: Path) -> list[Media]:
    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.media.probing import probe

    try:
        from spark_vllm_docker.media.pages import draw_pages
    except ImportError as error:
        raise Refused("pypdfium2, which draws PDFs, is missing", hint=NEEDS) from error

    folder.mkdir(exist_ok=True)
    return [probe(page) for page in draw_pages(path, folder)]


def _read_text(source: str, media: Media) -> str:
    from spark_vllm_docker.errors import BadMedia

    if media.size > MOST_TEXT_BYTES:
        raise BadMedia(f"{source} is {media.size >> 20} MiB of text: no model reads that at once")
    return f"{Path(source).name}:\n{media.path.read_text(encoding='utf-8', errors='replace')}"
