"""What is known of a model on this machine: its `config.json` in a folder or in the Hugging Face
cache, else the catalogue, else, where it is asked for, the Hub. Weights are never read, only
their sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_vllm_docker.catalog.layers import UnknownShape
from spark_vllm_docker.catalog.model_shapes import (
    ModelShape,
    find_known_shape,
    read_shape,
)
from spark_vllm_docker.errors import say_reason
from spark_vllm_docker.launcher.weights import find_weights

Ask = Callable[[str], bytes]
_MAX_BYTES = 1 << 20
_GIB = 1 << 30


def find_model_shape(
    model: str, environ: Mapping[str, str], ask: Ask | None = None
) -> tuple[ModelShape | None, str]:
    """The shape, or None and why there is none; `ask` gives the config.json of the Hub."""
    if not model:
        return None, "the command names no model"
    known = find_known_shape(model)
    folder = _find_folder(model, environ)
    try:
        if folder is not None:
            shape = read_shape(model, _read_config(folder), str(folder))
            return _complete(shape, known, folder), ""
        if known is not None:
            return known, ""
        if ask is not None:
            return read_shape(model, parse_config(ask(model)), "the Hub"), ""
    except UnknownShape as error:
        return None, f"{model}: {error}"
    return None, (
        f"{model} is not in the cache and not in the catalogue; --hub reads its config.json there"
    )


def _complete(shape: ModelShape, known: ModelShape | None, folder: Path) -> ModelShape:
    """What the file does not say: from the weights beside it, else from the catalogue."""
    weights, weights_from = find_weights(folder)
    if weights:
        shape = replace(shape, weights_gib=weights / _GIB, weights_from=weights_from)
    if known is None:
        return shape
    if not weights and known.weights_gib:
        shape = replace(shape, weights_gib=known.weights_gib, weights_from=known.weights_from)
    return replace(
        shape,
        quantization=shape.quantization or known.quantization,
        kv_cache=shape.kv_cache or known.kv_cache,
    )


def _find_folder(model: str, environ: Mapping[str, str]) -> Path | None:
    """A folder with a config.json: the model's own, or its newest snapshot in the cache."""
    own = Path(model)
    if own.is_absolute():
        return own if (own / "config.json").is_file() else None
    home = environ.get("HF_HOME") or f"{environ.get('HOME', '~')}/.cache/huggingface"
    hub = Path(environ.get("HF_HUB_CACHE") or f"{home}/hub")
    repository = hub / f"models--{model.replace('/', '--')}"
    found = [path.parent for path in repository.glob("snapshots/*/config.json") if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _read_config(folder: Path) -> Any:
    """The config.json, with what ModelOpt writes beside it."""
    config = _read_json(folder / "config.json")
    beside = folder / "hf_quant_config.json"
    if "quantization_config" not in config and beside.is_file():
        return {**config, "quantization_config": _read_json(beside)}
    return config


def _read_json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        return parse_config(raw)
    except OSError as error:
        reason = say_reason(error)
        raise UnknownShape(f"{path} cannot be read: {reason}") from error


def parse_config(raw: bytes) -> Any:
    """The text of a config.json.

    Raises:
        UnknownShape: it is none.
    """
    try:
        data = json.loads(raw[: _MAX_BYTES + 1])
    except (ValueError, RecursionError) as error:
        raise UnknownShape("its config.json is not JSON") from error
    if not isinstance(data, dict):
        raise UnknownShape("its config.json is no mapping")
    return data
