"""What the planner computes beside what vLLM printed: block sizes, blocks, tokens, prompts."""

from __future__ import annotations

from collections.abc import Iterator

from spark_vllm_docker.plan.kv_cache import count_kv_cache
from spark_vllm_docker.plan.video import Video, VideoSettings, count_video
from tests.plan.test_mamba_and_kv import ALIGN, NANO, TABLE, block_of, settings_of, shape_of


def planned_numbers() -> Iterator[tuple[str, float, float]]:
    """(what, ours, the reference): a whole number must be equal, another within 0.6 %."""
    right = sum(
        block_of(row[0], f"--kv-cache-dtype {kv} {ALIGN}") == row[1][index]
        for row in TABLE
        for index, kv in enumerate(("auto", "fp8"))
    )
    yield "block sizes of the table that are equal", right, 2 * len(TABLE)
    shape = shape_of(NANO)
    flags = f"--kv-cache-dtype fp8 {ALIGN} --max-model-len 65536 --max-num-seqs 8"
    settings = settings_of(shape, flags)
    cache = count_kv_cache(shape, settings, int(51.51 * (1 << 30)), 65536)
    yield "KV blocks of a measured start", cache.blocks, 4311
    yield "KV tokens of a measured start", cache.logged_tokens, 3_599_712
    yield "hundredths of its concurrency", int(cache.concurrency * 100), 17962
    article = VideoSettings(2.0, 512)
    yield "prompt tokens of a video of 180 s", count_video(Video(180), article).prompt, 53_842.0
    yield "prompt tokens of a video of 19 s", count_video(Video(19), article).prompt, 5_637.0
