"""The table of videos as an SVG picture: prompt tokens over the length of the video."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spark_vllm_docker.plan.video_plan import VideoPlan, say_duration

_BAR, _GAP, _LEFT, _WIDTH = 22, 12, 90, 560
_FONT = 'font-family="sans-serif" font-size="13"'
_PARTS = (("video", "#3b6ea5"), ("labels", "#9db8d6"), ("audio", "#d98c3f"))


def draw_sweep(name: str, plans: Sequence[VideoPlan]) -> str:
    """One bar for each length, its parts stacked, and the line that the prompt must not cross."""
    most = max([plan.cost.prompt for plan in plans] + [plan.prompt_limit for plan in plans] + [1])
    height = 70 + len(plans) * (_BAR + _GAP)
    width = _LEFT + _WIDTH + 130
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {_FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{escape(name)}: prompt tokens of a video</text>',
    ]
    for index, plan in enumerate(plans):
        y = 44 + index * (_BAR + _GAP)
        rows.append(
            f'<text x="{_LEFT - 10}" y="{y + 16}" text-anchor="end">'
            f"{say_duration(plan.video.duration_s)}</text>"
        )
        x = float(_LEFT)
        for part, colour in _PARTS:
            wide = getattr(plan.cost, part) / most * _WIDTH
            rows.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}" fill="{colour}"/>'
            )
            x += wide
        verdict = "" if plan.parts == 1 else f"  {plan.parts} parts"
        rows.append(f'<text x="{x + 6:.1f}" y="{y + 16}">{plan.cost.prompt:,}{verdict}</text>')
    if plans:
        x = _LEFT + plans[0].prompt_limit / most * _WIDTH
        rows.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="36" y2="{height - 28}" stroke="#b03030" '
            'stroke-dasharray="4 3"/>'
        )
    legend = "   ".join(f'<tspan fill="{colour}">■</tspan> {part}' for part, colour in _PARTS)
    rows.append(f'<text x="{_LEFT}" y="{height - 8}">{legend}   ┊ limit of the prompt</text>')
    return "\n".join([*rows, "</svg>"]) + "\n"
