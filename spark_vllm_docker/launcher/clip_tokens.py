"""What the canaries' clips cost in prompt tokens, by the formula of a deployment's model.

Sources: `plan/video.py` for Nemotron Nano Omni; for Qwen2.5-Omni transformers'
`Qwen2_5OmniProcessor` (25 tokens of sound in a second, and two marks in a video), as a real server
counts (vLLM 0.32.0: 50 for the voice, 53 more for a video with its sound).
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_vllm_docker.catalog.layers import QWEN_OMNI
from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.health.clips import ASPECT, FRAMES_PER_S, SECONDS
from spark_vllm_docker.health.media_canaries import SOUND
from spark_vllm_docker.launcher.deployed_flags import read_deployed_flags
from spark_vllm_docker.launcher.model_facts import find_model_shape
from spark_vllm_docker.plan.engine_settings import UnknownSetting
from spark_vllm_docker.plan.video import Video, count_video
from spark_vllm_docker.plan.video_plan import read_video_flags
from spark_vllm_docker.recipe.serve import parse_serve

_QWEN_SOUND_PER_S, _MARKS = 25, 2


def expect_clips(deployed: Deployed, environ: Mapping[str, str]) -> dict[str, int]:
    """Tokens of the voice (`audio`), of the video's frames (`video`) and of its sound (`sound`);
    only what a formula gives.
    """
    serve = parse_serve(deployed.script)
    if serve is None or "audio" not in deployed.modalities:
        return {}
    shape, _ = find_model_shape(serve.model, environ)
    if shape is None:
        return {}
    if shape.architecture in QWEN_OMNI:
        sound = round(_QWEN_SOUND_PER_S * SECONDS)
        return {"audio": sound, SOUND: sound + _MARKS}
    if not shape.video:
        return {}
    try:
        settings = read_video_flags(read_deployed_flags(deployed)[1])
    except UnknownSetting:
        return {}
    cost = count_video(Video(SECONDS, ASPECT, source_fps=FRAMES_PER_S), settings)
    return {"audio": cost.audio, "video": cost.video + cost.labels, SOUND: cost.audio}
