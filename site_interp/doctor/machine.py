"""What a self-test ran on: versions, processor, memory, cache folder, browser, network."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from site_interp.figure_files import find_browser
from site_interp.model.bundled import cache_folder

PACKAGES = (
    "site-interp", "torch", "transformers", "transformer-lens", "tokenizers", "huggingface-hub", "accelerate",
    "safetensors", "datasets", "numpy", "plotly", "kaleido",
)  # fmt: skip
GIB = 1 << 30


def describe_machine() -> dict[str, str | int | float | bool | None]:
    """Versions and surroundings, by name; None for what is not there. Sizes are in GiB."""
    cache = cache_folder()
    total, available = _memory()
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "system": platform.platform(terse=True),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "memory": total,
        "memory available": available,
        "cache folder": str(cache),
        "cache size": _size(cache),
        "browser for PNG": find_browser(),
        "offline": any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
                       for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")),
    }  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory() -> tuple[float | None, float | None]:
    """Memory of the machine and what a new process could take of it; None where the system does not tell."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        sizes = [page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        return None, None
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():  # counts what the system would give back from its file cache
        fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines() if ":" in line)
        if "MemAvailable" in fields:
            sizes[1] = int(fields["MemAvailable"].split()[0]) * 1024
    return round(sizes[0] / GIB, 1), round(sizes[1] / GIB, 1)


def _size(folder: Path) -> float:
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return round(sum(path.stat().st_size for path in files) / GIB, 2)
