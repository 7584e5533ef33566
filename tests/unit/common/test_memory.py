"""The memory of a process after many threads have used large buffers."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

HELD = """
import sys, threading
from streamvault.common.processes import give_back_large_buffers
if sys.argv[1:]:
    give_back_large_buffers()

small, together = [], threading.Barrier(12)

def use():
    together.wait()
    for _ in range(3):
        large = bytearray(b"x") * (16 << 20)
        small.append(bytearray(2000))  # what keeps a heap from shrinking
        del large

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) // 1024

before = resident()
threads = [threading.Thread(target=use) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(resident() - before)
"""


FAULTS = """
import resource, sys
from streamvault.common.processes import give_back_large_buffers
give_back_large_buffers()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = faults()
for _ in range(100):
    blocks = [bytearray(b"x") * (1 << 20) for _ in range(8)]
    del blocks
print(faults() - before)
"""


def held(*arguments: str) -> int:
    """The memory (MiB) by which a new process has grown after its threads have ended."""
    return int(subprocess.run([sys.executable, "-c", HELD, *arguments], capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems' C libraries have other ways")
def test_freed_large_buffers_return_to_the_system() -> None:
    assert held() > 24  # otherwise the test would measure nothing
    assert held("give back") < 12


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems' C libraries have other ways")
def test_small_buffers_are_used_again() -> None:
    faults = int(subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True).stdout)
    assert faults < 10_000  # 200,000 if each had new pages
