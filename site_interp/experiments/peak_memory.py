"""The most memory a stretch of work took: of the GPU, or of this process where the model runs on the CPU."""

import contextlib
import ctypes
import gc
import resource
import sys
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")  # Linux: VmHWM is the peak since the last reset
CLEAR = Path("/proc/self/clear_refs")
CLEAR_PEAK = "5"


def reset_peak_memory() -> None:
    """Begin a new stretch. Where a peak cannot be reset (outside Linux) it stays that of the whole process.

    What earlier work has freed is given back first: the allocator keeps it, and it would count as this stretch's.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc's own
        ctypes.CDLL(None).malloc_trim(0)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        CLEAR.write_text(CLEAR_PEAK)


def peak_memory_mb() -> float:
    """The peak of the stretch, in MB of 2^20 bytes."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 2**20
    if STATUS.is_file():
        (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 1024  # macOS counts bytes
