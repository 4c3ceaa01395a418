"""Images that spark-recipe can build itself, one folder under `launch/images/` for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spark_vllm_docker.catalog.shipped import find_shipped
from spark_vllm_docker.catalog.yaml_data import read_yaml


@dataclass(frozen=True, slots=True)
class BuildableImage:
    """An image of `launch/images/`: `repository:tag` is built from `folder`.

    `tag_build_arg` is the Dockerfile argument that gets the tag, or empty. `prepare` is a script
    that runs on the host before the build and puts the context together; without one the folder
    is the context. With `keep_existing` an image that is there is never built again.
    """

    repository: str
    folder: Path
    about: str
    default_tag: str
    tag_build_arg: str
    prepare: str
    keep_existing: bool


def load_buildable_images() -> dict[str, BuildableImage]:
    """All images of `launch/images/`, by repository."""
    images = {}
    for file in sorted(find_shipped("launch").glob("images/*/image.yaml")):
        data = read_yaml(file)
        image = BuildableImage(
            repository=data["repository"],
            folder=file.parent,
            about=data["about"],
            default_tag=str(data["default_tag"]),
            tag_build_arg=data.get("tag_build_arg", ""),
            prepare=data.get("prepare", ""),
            keep_existing=data.get("keep_existing", False),
        )
        images[image.repository] = image
    return images


def split_reference(reference: str) -> tuple[str, str]:
    """Split `repository:tag`; the tag is empty when there is none (or a digest instead)."""
    repository, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag or "@" in repository:
        return reference, ""
    return repository, tag
