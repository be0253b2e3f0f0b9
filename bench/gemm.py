"""The GEMM rate of one core, in GFLOP/s: the faster of NumPy's and XLA's product of two 1024x1024 matrices.

python bench/gemm.py CORE SECONDS
"""

from __future__ import annotations

import os
import sys
import time

SIZE = 1024

if __name__ == "__main__":
    from measure import confine

    confine(1)
    os.sched_setaffinity(0, {int(sys.argv[1])})

    import jax
    import numpy as np

    matrix = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32)
    on_device = jax.device_put(matrix)
    product = jax.jit(lambda a: a @ a)
    product(on_device).block_until_ready()
    best = 0.0
    for multiply in (lambda: matrix @ matrix, lambda: product(on_device).block_until_ready()):
        end, number, began = time.perf_counter() + float(sys.argv[2]) / 2, 0, time.perf_counter()
        while time.perf_counter() < end:
            multiply()
            number += 1
        best = max(best, number * 2 * SIZE**3 / (time.perf_counter() - began) / 1e9)
    print(best)
