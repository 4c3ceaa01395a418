"""Files that a verb writes for the user."""

from __future__ import annotations

from pathlib import Path

from spark_vllm_docker.errors import Refused


def write_new_file(path: Path, text: str, *, force: bool) -> None:
    """Write a file; one that is there is overwritten only with `force`.

    Raises:
        Refused: it is there, or it cannot be written.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise Refused(f"{path} is there already", hint="--force overwrites it") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refused(f"{path}: cannot be written: {reason}") from error
