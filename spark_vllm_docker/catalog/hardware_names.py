"""The names of the machines that recipes speak of, known without reading what they are."""

from __future__ import annotations

HARDWARE = ("dgx-spark", "h100", "h200", "b200", "a100", "l40s", "rtx-pro-6000", "cpu")
CPU = "cpu"
