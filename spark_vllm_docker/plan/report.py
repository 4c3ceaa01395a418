"""What the planner says of one start: numbers, findings, and the flags that mend them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.hardware import Hardware
from spark_vllm_docker.catalog.hardware_names import CPU
from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.findings import Finding, Severity, Where
from spark_vllm_docker.plan.compatibility import Situation, check_compatibility
from spark_vllm_docker.plan.engine_settings import (
    EngineSettings,
    UnknownSetting,
    describe_defaults,
    read_number,
    read_settings,
)
from spark_vllm_docker.plan.image import ImageView, check_image
from spark_vllm_docker.plan.mamba_block import (
    asserts_budget,
    attention_block_size,
    good_budget,
    hangs_instead,
)
from spark_vllm_docker.plan.memory import (
    MemoryPlan,
    Proposal,
    blocks_for_sequences,
    plan_memory,
    propose,
)
from spark_vllm_docker.plan.window_block import check_windows
from spark_vllm_docker.recipe.arguments import Arguments, read_arguments
from spark_vllm_docker.recipe.command import Argument
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import find_serve_words

Flags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of the machine and the model: None and empty where nothing is.

    `free_gib` is what is free on the GPU now; `unplanned` says why there is no shape.
    """

    hardware: Hardware | None
    shape: ModelShape | None
    unplanned: str = ""
    free_gib: float | None = None
    image: ImageView | None = None


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plan of one recipe. `fixes` are flags that mend what can be mended without a choice."""

    recipe: Recipe
    arguments: Arguments
    surroundings: Surroundings
    settings: EngineSettings | None
    block_tokens: int
    memory: MemoryPlan | None
    proposals: tuple[Proposal, ...]
    findings: tuple[Finding, ...]
    fixes: Flags = field(default=())
    multimodal: bool = False

    @property
    def errors(self) -> list[Finding]:
        """What stops a start."""
        return [f for f in self.findings if f.severity is Severity.ERROR]


def build_plan(recipe: Recipe, command: str, surroundings: Surroundings) -> PlanReport:
    """Plan the start of a recipe; `command` is its final text, with all overrides."""
    image = surroundings.image
    version = (image.vllm if image else "") or read_vllm_version(recipe.keys.container) or ""
    arguments = _read_command(recipe, command, version)
    hardware = surroundings.hardware
    situation = Situation(
        recipe,
        arguments,
        surroundings.shape,
        version,
        hardware.name if hardware else "",
        image.modules if image else None,
    )
    findings = check_image(recipe, image, hardware) if image else []
    findings += check_compatibility(situation)
    empty = PlanReport(recipe, arguments, surroundings, None, 0, None, (), tuple(findings))
    shape = surroundings.shape
    if shape is None:
        return _with(empty, [*findings, _say_unplanned(recipe, surroundings.unplanned)])
    try:
        settings = read_settings(arguments, shape, version, hardware)
        check_windows(shape, settings)
    except UnknownSetting as error:
        return _with(empty, [*findings, _say_unplanned(recipe, str(error))])
    planner = _Planner(recipe, arguments, surroundings, shape, settings)
    return planner.plan(findings)


class _Planner:
    """Collects the findings about settings that are known."""

    def __init__(
        self,
        recipe: Recipe,
        arguments: Arguments,
        surroundings: Surroundings,
        shape: ModelShape,
        settings: EngineSettings,
    ) -> None:
        self._recipe = recipe
        self._arguments = arguments
        self._surroundings = surroundings
        self._shape = shape
        self._settings = settings
        self._findings: list[Finding] = []
        self._fixes: list[tuple[str, str]] = []
        self._multimodal = bool(set(recipe.keys.modalities) - {"text"}) or bool(shape.video)

    def plan(self, findings: Sequence[Finding]) -> PlanReport:
        self._check_shape()
        block = attention_block_size(self._shape, self._settings)
        self._check_block(block)
        self._check_alignment(block)
        memory = self._plan_memory()
        proposals = self._check_memory(memory) if memory else ()
        return PlanReport(
            recipe=self._recipe,
            arguments=self._arguments,
            surroundings=self._surroundings,
            settings=self._settings,
            block_tokens=block,
            memory=memory,
            proposals=tuple(proposals),
            findings=(*findings, *self._findings),
            fixes=tuple(self._fixes),
            multimodal=self._multimodal,
        )

    def _check_shape(self) -> None:
        settings, shape = self._settings, self._shape
        key_heads = [shape.kv_heads, *([shape.window.kv_heads] if shape.window else [])]
        if shape.attention_heads % settings.tensor_parallel:
            self._error(
                "TP001",
                f"--tensor-parallel-size {settings.tensor_parallel} does not divide the "
                f"{shape.attention_heads} attention heads of {shape.model}",
                "--tensor-parallel-size",
            )
        elif undivided := [
            heads for heads in key_heads if not _divide(heads, settings.tensor_parallel)
        ]:
            self._error(
                "TP002",
                f"--tensor-parallel-size {settings.tensor_parallel} and the {undivided[0]} "
                f"key heads of {shape.model}: neither divides the other",
                "--tensor-parallel-size",
            )
        elif shape.state is not None and shape.state.heads % settings.tensor_parallel:
            self._error(
                "TP003",
                f"--tensor-parallel-size {settings.tensor_parallel} does not divide the "
                f"{shape.state.heads} heads of the recurrent layers of {shape.model}",
                "--tensor-parallel-size",
            )
        self._check_length()

    def _check_length(self) -> None:
        """VLLM compares with what the checkpoint says after its RoPE scaling, and lets a variable
        turn the error into a warning (config/model.py, `_get_and_verify_max_len`).
        """
        length, longest = self._settings.max_model_len, self._shape.longest_position
        if not longest or length <= longest or self._arguments.find("--hf-overrides"):
            return
        allowed = str(self._recipe.keys.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0"))
        certain = allowed.lower() not in ("1", "true")
        self._error(
            "CTX001",
            f"--max-model-len {length:,} is more than the model's {longest:,}",
            "--max-model-len",
            f"--max-model-len {longest}",
            certain=certain,
        )
        if certain:
            self._fixes.append(("--max-model-len", str(longest)))

    def _check_alignment(self, block: int) -> None:
        """What else mode align needs (0.20.0 config/vllm.py:1861-1875, models/config.py:384)."""
        settings, flags = self._settings, self._arguments
        if settings.mamba_cache_mode != "align" or not asserts_budget(settings.version):
            return
        threshold = read_number(flags, "--long-prefill-token-threshold")
        if 0 < threshold < block:
            self._error(
                "MAMBA003",
                f"mode align needs --long-prefill-token-threshold of a block ({block}) or more, "
                f"found {threshold}",
                "--long-prefill-token-threshold",
                f"--long-prefill-token-threshold {block}",
            )
        for name, wanted in (
            ("--disable-chunked-mm-input", False),
            ("--enable-chunked-prefill", True),
        ):
            given = flags.find(name)
            if given is not None and given.negated is wanted:
                self._error(
                    "MAMBA003",
                    f"mode align needs chunked prefill, also of media: {given.written}",
                    name,
                    f"leave {given.written} out, or --no-enable-prefix-caching",
                )

    def _check_block(self, block: int) -> None:
        settings = self._settings
        budget = settings.max_num_batched_tokens
        if settings.mamba_cache_mode != "align" or block <= budget:
            return
        asked = f"{budget}" if settings.batched_tokens_given else f"{budget}, by default"
        why = (
            ""
            if settings.batched_tokens_given
            else (f" ({describe_defaults(self._surroundings.hardware)})")
        )
        better = good_budget(block, budget)
        # A default that depends on hardware which nobody knows may be larger than it is taken for.
        certain = settings.batched_tokens_given or self._surroundings.hardware is not None
        certain = certain and bool(settings.version)
        fix = f"--max-num-batched-tokens {better}"
        if asserts_budget(settings.version):
            self._error(
                "MAMBA001",
                f"In Mamba cache align mode, block_size ({block}) must be <= "
                f"max_num_batched_tokens ({asked}){why}",
                "--max-num-batched-tokens",
                fix,
                certain=certain,
            )
            self._fixes.append(("--max-num-batched-tokens", str(better)))
        elif hangs_instead(settings.version):
            self._error(
                "MAMBA002",
                f"vLLM {settings.version} waits forever, without a word: its Mamba block of "
                f"{block} tokens is above max_num_batched_tokens ({asked}){why}",
                "--max-num-batched-tokens",
                fix,
                certain=certain,
            )
            self._fixes.append(("--max-num-batched-tokens", str(better)))

    def _plan_memory(self) -> MemoryPlan | None:
        hardware = self._surroundings.hardware
        if hardware is None or hardware.name == CPU:
            return None
        return plan_memory(self._shape, self._settings, hardware, multimodal=self._multimodal)

    def _check_memory(self, memory: MemoryPlan) -> list[Proposal]:
        settings, free = self._settings, self._surroundings.free_gib
        flag = "--gpu-memory-utilization"
        if free is not None and memory.requested_gib > free:
            share = int(free / memory.total_gib * 100) / 100
            enough = share * memory.total_gib > memory.weights_gib + memory.graphs_gib
            self._error(
                "MEM003",
                f"{flag} {settings.utilization:g} asks for {memory.requested_gib:.1f} of "
                f"{memory.total_gib:.1f} GiB, and {free:.1f} GiB are free now",
                flag,
                "stop what uses the memory (spark-recipe ps)"
                + (f", or {flag} {share:.2f}" if enough else ""),
            )
        if settings.kv_cache_bytes and memory.needed_gib > memory.total_gib:
            self._error(
                "MEM006",
                f"the weights and --kv-cache-memory-bytes take {memory.needed_gib:.1f} GiB, and "
                f"the GPU has {memory.total_gib:.1f} GiB",
                "--kv-cache-memory-bytes",
                "a smaller --kv-cache-memory-bytes",
            )
        if memory.weights_gib > memory.requested_gib and not settings.kv_cache_bytes:
            self._error(
                "MEM004",
                f"the weights take {memory.weights_gib:.1f} GiB on each GPU, and {flag} "
                f"{settings.utilization:g} gives {memory.requested_gib:.1f} GiB",
                flag,
                "a smaller checkpoint, or more GPUs with --tensor-parallel-size",
            )
            return []
        if not blocks_for_sequences(self._shape, settings, memory):
            self._error(
                "MEM005",
                f"--max-num-seqs {settings.max_num_seqs} is more than the "
                f"{memory.optimist.blocks} Mamba blocks that fit",
                "--max-num-seqs",
                f"--max-num-seqs {max(1, memory.cache.blocks)}",
            )
        if memory.fits:
            return []
        hardware = self._surroundings.hardware
        assert hardware is not None  # noqa: S101 - there is no memory plan without it
        proposals = propose(
            self._shape, settings, hardware, multimodal=self._multimodal, free_gib=free
        )
        fix = "; or ".join(proposal.text for proposal in proposals)
        longest = memory.optimist.longest
        if memory.may_fit:
            where = self._place("--max-model-len")
            message = (
                f"one request of {memory.length:,} tokens fits only if activations take little: "
                f"{memory.cache.longest:,} to {longest:,} tokens fit"
            )
            self._findings.append(Finding("MEM002", Severity.WARNING, message, where, fix))
        else:
            self._error(
                "MEM001",
                f"one request of {memory.length:,} tokens does not fit: "
                f"{max(0.0, memory.available_gib[1]):.1f} GiB are left for the KV cache at most, "
                f"for {longest:,} tokens",
                "--max-model-len",
                fix or "a smaller checkpoint, or a GPU with more memory",
            )
        return proposals

    def _error(
        self, code: str, message: str, flag: str, fix: str = "", *, certain: bool = True
    ) -> None:
        severity = Severity.ERROR if certain else Severity.WARNING
        self._findings.append(Finding(code, severity, message, self._place(flag), fix))

    def _place(self, flag: str) -> Where:
        """Where the recipe sets a flag, else where its command is."""
        words = self._recipe.command.read_arguments(self._recipe.values)
        flags = find_release(self._settings.version).flags
        given = read_arguments(words or (), flags).find(flag)
        source = self._recipe.source
        if given is not None:
            return given.where
        section = ("serve",) if ("serve",) in source.keys else ("command",)
        return source.where(section) if section in source.keys else source.start


def _read_command(recipe: Recipe, command: str, version: str) -> Arguments:
    place = recipe.source.start
    words = find_serve_words(command) or ()
    return read_arguments(
        [Argument(place, word.value) for word in words], find_release(version).flags
    )


def _divide(one: int, other: int) -> bool:
    """Whether one of the two divides the other: heads are split, or held by several ranks."""
    return one % other == 0 or other % one == 0


def _say_unplanned(recipe: Recipe, why: str) -> Finding:
    where = recipe.source.where(("model",)) if recipe.keys.model else recipe.source.start
    message = f"not planned: {why or 'nothing is known of the model'}"
    return Finding("PLAN001", Severity.NOTE, message, where)


def _with(report: PlanReport, findings: Sequence[Finding]) -> PlanReport:
    return PlanReport(
        report.recipe,
        report.arguments,
        report.surroundings,
        report.settings,
        report.block_tokens,
        report.memory,
        report.proposals,
        tuple(findings),
    )
