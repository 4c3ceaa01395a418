"""The flags of a recipe as numbers, with the defaults that vLLM takes on a kind of hardware.

Sources: `vllm/engine/arg_utils.py` (`get_batch_defaults`, 0.20.0:2179-2260 and 2339-2418; its row
for 160 GiB came with 0.28.0), `vllm/config/cache.py` (0.92 since 0.20.0), `vllm/config/model.py`
(prefix caching of hybrid models: off until 0.25.1, on from 0.26.0), `models/config.py` (mode `all`
by default until 0.27.1, on request until 0.31.0). Read in the wheels of all releases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.catalog.hardware import Hardware
from spark_vllm_docker.catalog.hardware_names import CPU
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.findings import printable
from spark_vllm_docker.recipe.arguments import Arguments

AUTO = -1
"""`--max-model-len auto`: as long as fits."""
_DTYPE_BYTES = {
    "float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "fp8": 1, "fp8_e4m3": 1,
    "fp8_e5m2": 1, "fp8_inc": 1, "int8": 1,
}  # fmt: skip
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_NO_POSITION = 2048
"""What vLLM takes when a checkpoint names no longest position (config/model.py)."""
_MOST = 1 << 50
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class UnknownSetting(ValueError):
    """A flag's value is not a number that can be planned with; the message says which, in
    characters that may be shown.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the planner needs of `vllm serve`'s flags.

    `version` is the release, or empty; `max_num_batched_tokens` and `max_num_seqs` are the defaults
    of this hardware where `batched_tokens_given` is false. Bytes are per element. `max_model_len`
    is `AUTO` for auto. `utilization` is the fraction of the GPU's memory; `kv_cache_bytes`
    replaces it where it is not 0. `weights_changed_by` is the flag with which the GPU holds other
    weights than the checkpoint's; `full_graphs` whether CUDA graphs of whole decode steps are made;
    `batches_in_flight` how many steps a window of tokens waits for before its blocks are freed.
    """

    version: str
    tensor_parallel: int
    pipeline_parallel: int
    speculative_tokens: int
    kv_dtype: str
    kv_bytes: int
    dtype_bytes: int
    conv_bytes: int
    ssm_bytes: int
    prefix_caching: bool
    mamba_cache_mode: str
    block_size: int
    mamba_block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    batched_tokens_given: bool
    utilization: float
    kv_cache_bytes: int
    weights_changed_by: str = ""
    full_graphs: bool = True
    batches_in_flight: int = 1


def read_settings(
    arguments: Arguments, shape: ModelShape, version: str, hardware: Hardware | None
) -> EngineSettings:
    """The settings of one recipe.

    Raises:
        UnknownSetting: a value that the plan depends on cannot be read.
    """
    flags = _Flags(arguments)
    _require_windows(flags, shape, version)
    dtype_bytes = _bytes_of(flags.text("--dtype", "auto"), shape.dtype, "--dtype")
    kv_dtype = flags.text("--kv-cache-dtype", "auto")
    if kv_dtype == "auto":
        kv_dtype = shape.kv_cache or "auto"
    conv = flags.text("--mamba-cache-dtype", "auto")
    conv_bytes = dtype_bytes if conv == "auto" else _bytes_of(conv, "", "--mamba-cache-dtype")
    prefix_caching = flags.switch(
        "--enable-prefix-caching", default=_caches_prefixes(shape, version)
    )
    speculative = _count_drafts(flags)
    tensor = flags.number("--tensor-parallel-size", 1, least=1)
    pipeline = flags.number("--pipeline-parallel-size", 1, least=1)
    length = flags.number("--max-model-len", 0, least=AUTO) or shape.max_position or _NO_POSITION
    given = flags.number("--max-num-batched-tokens", 0)
    tokens, sequences = _batch_sizes(flags, hardware, version, tensor * pipeline, length)
    mode = _cache_mode(flags, shape, version, prefix_caching, speculative)
    return EngineSettings(
        version=version,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        speculative_tokens=speculative,
        kv_dtype=kv_dtype,
        kv_bytes=dtype_bytes if kv_dtype == "auto" else _bytes_of(kv_dtype, "", "--kv-cache-dtype"),
        dtype_bytes=dtype_bytes,
        conv_bytes=conv_bytes,
        ssm_bytes=_ssm_bytes(flags, shape, conv_bytes),
        prefix_caching=prefix_caching,
        mamba_cache_mode=mode,
        block_size=flags.number("--block-size", 0),
        mamba_block_size=flags.number("--mamba-block-size", 0),
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        batched_tokens_given=bool(given),
        utilization=flags.fraction("--gpu-memory-utilization", _default_utilization(version)),
        kv_cache_bytes=flags.number("--kv-cache-memory-bytes", 0),
        weights_changed_by=_find_weights_changer(flags, shape),
        full_graphs=_makes_full_graphs(flags),
        batches_in_flight=_count_batches(flags, version),
    )


def parse_human(text: str) -> int:
    """`64K` → 65536, `64k` → 64000, `1.5k` → 1500, `auto` → -1 (vllm/engine/arg_utils.py:29-75).

    Raises:
        ValueError: it is not a number of that form.
    """
    if text == "auto":
        return AUTO
    found = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)([kmgtKMGT]?)", text)
    number, suffix = found.groups() if found else (".", "")
    if "." in number and suffix not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a number")
    if suffix in _BINARY:
        return int(number) * _BINARY[suffix]
    try:
        return int(float(number) * _SUFFIXES[suffix]) if suffix else int(number)
    except OverflowError as error:
        raise ValueError(f"{text[:40]!r} is no number that anything holds") from error


class _Flags:
    """Values of flags, the last use of each."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments

    def text(self, name: str, default: str) -> str:
        given = self._arguments.find(name)
        return given.values[0].value if given and given.values else default

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        text = self.text(name, "")
        if not text or text == "None":
            return default
        try:
            value = parse_human(text)
        except ValueError as error:
            raise UnknownSetting(f"{name} {text[:40]} is not a number") from error
        if not least <= value < _MOST:
            raise UnknownSetting(f"{name} {text[:40]} is not a number of {least} or more")
        return value

    def fraction(self, name: str, default: float) -> float:
        text = self.text(name, "")
        try:
            value = float(text) if text else default
        except ValueError as error:
            raise UnknownSetting(f"{name} {text[:40]} is not a number") from error
        if not 0 < value <= 1:
            raise UnknownSetting(f"{name} {text} is not a fraction above 0, at most 1")
        return value

    def given(self, name: str) -> bool:
        return self._arguments.find(name) is not None

    def switch(self, name: str, *, default: bool) -> bool:
        given = self._arguments.find(name)
        return default if given is None else not given.negated

    def json(self, name: str) -> dict[str, Any]:
        """The JSON of a flag, with what dotted keys set laid over it."""
        data: dict[str, Any] = {}
        for given in self._arguments.given:
            if given.name != name or not given.values:
                continue
            value = _loads(given.values[0].value)
            if given.key:
                _set_dotted(data, given.key.split("."), value)
            elif isinstance(value, dict):
                data |= value
        return data


def read_number(arguments: Arguments, name: str) -> int:
    """The value of a flag that is a number; 0 where it is not given.

    Raises:
        UnknownSetting: it is no number.
    """
    return _Flags(arguments).number(name, 0)


def read_json_flag(arguments: Arguments, name: str) -> dict[str, Any]:
    """The value of a JSON flag as the server sees it; empty when it is not given."""
    return _Flags(arguments).json(name)


def _set_dotted(data: dict[str, Any], keys: Sequence[str], value: object) -> None:
    """`a.b` is the key b of the mapping a."""
    for key in keys[:-1]:
        inner = data.get(key)
        data[key] = dict(inner) if isinstance(inner, dict) else {}
        data = data[key]
    data[keys[-1]] = value


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _bytes_of(name: str, checkpoint: str, flag: str) -> int:
    chosen = checkpoint if name == "auto" else name
    if flag == "--dtype" and name == "auto" and chosen in ("", "float32"):
        return 2  # vLLM takes 16 bit then (config/model.py, _resolve_auto_dtype)
    if chosen.lower() not in _DTYPE_BYTES:
        raise UnknownSetting(f"{flag} {chosen or 'auto'} is of a size that is not known")
    return _DTYPE_BYTES[chosen.lower()]


def _ssm_bytes(flags: _Flags, shape: ModelShape, conv_bytes: int) -> int:
    """`auto` is the convolution's dtype, except where the architecture has a hook for the file's
    own (models/config.py:409-452, 606-630: by architecture name, and the Omni model's is not
    there).
    """
    asked = flags.text("--mamba-ssm-cache-dtype", "auto")
    if asked == "auto" and shape.follows_ssm_dtype:
        asked = shape.ssm_dtype or shape.ssm_dtype_default or "auto"
    if asked == "auto":
        return conv_bytes
    return _bytes_of(asked, "", "--mamba-ssm-cache-dtype")


def _caches_prefixes(shape: ModelShape, version: str) -> bool:
    """On for attention models; for hybrids from 0.26.0 on."""
    return shape.state is None or _at_least(version, "0.26.0")


def _cache_mode(
    flags: _Flags, shape: ModelShape, version: str, prefix_caching: bool, speculative: int
) -> str:
    """none, align or all (models/config.py:338-406); without a recurrent state, empty."""
    if shape.state is None:
        return ""
    if not prefix_caching:
        return "none"
    asked = flags.text("--mamba-cache-mode", "none")
    can_all = shape.supports_mode_all and not _at_least(version, "0.32.0")
    if asked == "none":
        by_default = can_all and not _at_least(version, "0.28.0")
        return "all" if by_default and not speculative else "align"
    return asked if asked != "all" or can_all else "align"


def _count_drafts(flags: _Flags) -> int:
    """Speculative tokens, from either way to write them (`--spec-tokens` is of 0.24 and later)."""
    config = flags.json("--speculative-config")
    count = flags.number("--spec-tokens", 0) or config.get("num_speculative_tokens")
    if count is None:
        if config or flags.text("--spec-method", ""):
            raise UnknownSetting("the number of speculative tokens is not given: the draft decides")
        return 0
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < _MOST:
        raise UnknownSetting("--speculative-config: num_speculative_tokens is not a number")
    return count


def _batch_sizes(
    flags: _Flags, hardware: Hardware | None, version: str, world: int, length: int
) -> tuple[int, int]:
    """`max_num_batched_tokens` and `max_num_seqs`, given or by default (arg_utils.py,
    `_set_default_max_num_seqs_and_batched_tokens_args`).
    """
    given_tokens = flags.number("--max-num-batched-tokens", 0)
    given_sequences = flags.number("--max-num-seqs", 0)
    tokens, sequences = _batch_defaults(hardware, version, world)
    if flags.text("--performance-mode", "") == "throughput":
        tokens, sequences = 2 * tokens, 2 * sequences
    sequences = given_sequences or sequences
    if given_tokens:
        tokens = given_tokens
    elif length > 0:
        if not flags.switch("--enable-chunked-prefill", default=True):
            tokens = max(tokens, length)
        tokens = min(tokens, sequences * length)
    return tokens, given_sequences or min(sequences, tokens)


def _batch_defaults(hardware: Hardware | None, version: str, world: int) -> tuple[int, int]:
    """Both sizes of an API server, before anything is said.

    A GB10 reports no memory through NVML, so vLLM counts it as small: 2048 and 256.
    """
    if hardware is not None and hardware.name == CPU:
        return 2048 * world, 128 * world
    if hardware is None or hardware.nvml_memory_gib < 70 or hardware.name == "a100":
        return 2048, 256
    if hardware.nvml_memory_gib >= 160 and _at_least(version, "0.28.0"):
        return 16384, 1024
    return 8192, 1024


def _find_weights_changer(flags: _Flags, shape: ModelShape) -> str:
    """The flag because of which the size of the checkpoint is not what a GPU holds."""
    for name in ("--cpu-offload-gb", "--offload-group-size", "--enable-expert-parallel"):
        if flags.given(name) and flags.text(name, "1") not in ("0", "0.0"):
            return name
    if flags.given("--quantization") and not shape.quantization:
        return "--quantization"
    return ""


def _makes_full_graphs(flags: _Flags) -> bool:
    """Not with --enforce-eager, -O0, or a mode without them."""
    mode = str(flags.json("--compilation-config").get("cudagraph_mode", "FULL_AND_PIECEWISE"))
    eager = flags.switch("--enforce-eager", default=False)
    unoptimized = flags.text("--optimization-level", "") == "0"
    return not eager and not unoptimized and "FULL" in mode.upper()


def _require_windows(flags: _Flags, shape: ModelShape, version: str) -> None:
    """What changes how windows are kept is not planned: another manager of the cache, windows of
    another dtype, a draft with layers of its own, and from 0.26.0 on stages of a pipeline, of which
    nobody says how many steps are in flight.
    """
    if shape.window is None:
        return
    changers = [
        "--disable-hybrid-kv-cache-manager",
        "--disable-sliding-window",
        "--kv-transfer-config",
        "--kv-cache-dtype-skip-layers",
        "--speculative-config",
        "--spec-method",
    ]
    found = [name for name in changers if flags.switch(name, default=False)]
    numbers = ["--decode-context-parallel-size", "--prefill-context-parallel-size"]
    if not version or _at_least(version, "0.26.0"):
        numbers.append("--pipeline-parallel-size")
    found += [name for name in numbers if flags.number(name, 1) > 1]
    if found:
        raise UnknownSetting(f"{found[0]} changes how windows are kept")


def _count_batches(flags: _Flags, version: str) -> int:
    """Steps at the same time: two where scheduling is asynchronous, as it is by default. Before
    0.26.0 the cache makes no room for that (config/vllm.py, `max_in_flight_tokens`).
    """
    if version and not _at_least(version, "0.26.0"):
        return 1
    return 1 + flags.switch("--async-scheduling", default=True)


def _default_utilization(version: str) -> float:
    return 0.92 if _at_least(version, "0.20.0") or not version else 0.9


def _at_least(version: str, than: str) -> bool:
    return bool(version) and version_key(version) >= version_key(than)


def describe_defaults(hardware: Hardware | None) -> str:
    """Why the batch defaults are what they are, for a message."""
    if hardware is None:
        return "the hardware is not known, so the smaller default is taken"
    if hardware.name == "dgx-spark":
        return "a GB10 reports no memory through NVML, and vLLM takes its small default"
    return f"vLLM's default on {hardware.name}"


def as_mapping(settings: EngineSettings) -> Mapping[str, object]:
    """The settings by name, for a document."""
    return {name: getattr(settings, name) for name in EngineSettings.__slots__}
