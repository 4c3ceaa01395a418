"""What a client must know of a server before it asks: how long a prompt may be, what becomes of a
video, what a request may set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.launcher.deployed_flags import read_deployed_flags
from spark_vllm_docker.launcher.model_facts import find_model_shape
from spark_vllm_docker.media.chat import Listed
from spark_vllm_docker.plan.engine_settings import UnknownSetting, read_number
from spark_vllm_docker.plan.video import VideoSettings
from spark_vllm_docker.plan.video_plan import read_video_flags
from spark_vllm_docker.recipe.arguments import Arguments
from spark_vllm_docker.recipe.serve import parse_serve

REQUEST_KWARGS_NEED_TRUST = "0.32.0"
"""From here `mm_processor_kwargs` and `media_io_kwargs` of requests are refused without a flag, and
`/v1/chat/completions/render` is off without another.
"""
DEFAULT_SEQUENCES = 4


@dataclass(frozen=True, slots=True)
class ServerView:
    """A model on a server.

    `max_model_len` is 0 where it is not known. `video` is what the server does to videos;
    `counts_video` whether its tokens can be computed (Nemotron Nano Omni). `takes_kwargs` and
    `renders` are None where only asking tells. `folders` are folders of this machine that the
    server may read, and their paths there.
    """

    model: str
    max_model_len: int = 0
    video: VideoSettings = field(default_factory=VideoSettings)
    counts_video: bool = False
    takes_kwargs: bool | None = None
    renders: bool | None = None
    max_num_seqs: int = DEFAULT_SEQUENCES
    folders: tuple[tuple[Path, str], ...] = ()

    def find_local_url(self, path: Path) -> str:
        """The `file://` URL under which the server itself can read a file; empty if it cannot."""
        real = path.resolve()
        for folder, inside in self.folders:
            if real.is_relative_to(folder):
                return (Path(inside) / real.relative_to(folder)).as_uri()
        return ""


def view_deployment(
    deployed: Deployed, listed: Listed, environ: Mapping[str, str], *, in_container: bool
) -> ServerView:
    """The view of a deployment of ours, from its command."""
    view = view_listed(listed, environ)
    serve = parse_serve(deployed.script)
    if serve is None:
        return view
    version, arguments = read_deployed_flags(deployed)

    def allows(flag: str) -> bool | None:
        """Whether a request may do what needs a flag from 0.32 on."""
        if not version:
            return None
        if version_key(version) < version_key(REQUEST_KWARGS_NEED_TRUST):
            return True
        given = arguments.find(flag)
        return given is not None and not given.negated

    shape, _ = find_model_shape(serve.model, environ)
    return replace(
        view,
        video=read_video_flags(arguments),
        counts_video=view.counts_video or bool(shape and shape.video),
        takes_kwargs=allows("--trust-request-mm-kwargs"),
        renders=allows("--enable-scale-out"),
        max_num_seqs=_read_count(arguments, "--max-num-seqs", view.max_num_seqs),
        folders=_find_folders(
            deployed, serve.flag("--allowed-local-media-path"), in_container=in_container
        ),
    )


def view_listed(listed: Listed, environ: Mapping[str, str]) -> ServerView:
    """The view of any server, from what it lists."""
    shape, _ = find_model_shape(listed.root or listed.name, environ)
    return ServerView(
        listed.name,
        listed.max_model_len,
        counts_video=bool(shape and shape.video),
    )


def _find_folders(
    deployed: Deployed, allowed: str, *, in_container: bool
) -> tuple[tuple[Path, str], ...]:
    """The folder that requests may name, as it is called on this machine."""
    if not allowed.startswith("/"):
        return ()
    inside = Path(allowed)
    if not in_container:
        return ((inside.resolve(), allowed),)
    for source, target in deployed.mounts:
        if inside.is_relative_to(target):
            return ((Path(source).resolve() / inside.relative_to(target), allowed),)
        if Path(target).is_relative_to(inside):
            return ((Path(source).resolve(), target),)
    return ()


def _read_count(arguments: Arguments, flag: str, default: int) -> int:
    try:
        return read_number(arguments, flag) or default
    except UnknownSetting:
        return default
