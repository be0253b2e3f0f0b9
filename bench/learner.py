"""The learner's update alone, as a share of the machine's GEMM rate.

    python bench/learner.py [cores]        default: 1

SAC, 17 observations, 6 actions, 2x256, batch 256, K updates fused. The useful work is counted from the layers
(2.27 MFLOP for each replayed frame); the limit is the faster of NumPy's and XLA's own product of two 1024x1024
matrices, measured in turn with the update, on the same cores.
"""

from __future__ import annotations

import sys

from measure import confine, interleaved, report

CORES = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 1
if __name__ == "__main__":
    confine(CORES)

import jax  # noqa: E402
import numpy as np  # noqa: E402

import headrace  # noqa: E402
from headrace.compile.cells import CellLayout, make_cells  # noqa: E402
from headrace.compile.programs import Programs  # noqa: E402
from headrace.compile.rng import PassRng, bases  # noqa: E402
from headrace.graph import fuse, trace  # noqa: E402
from headrace.machine import Machine  # noqa: E402
from headrace.policies import single  # noqa: E402
from headrace.types import Batch, Box, EnvSpec  # noqa: E402

OBS, ACTIONS, HIDDEN, BATCH, FUSED = 17, 6, 256, 256, 32
SIZE, PRODUCTS = 1024, 10


def flops_per_frame() -> float:
    """Multiply-adds of every product in one update, twice: forwards, and backwards where a gradient is asked for."""
    critic = 2 * ((OBS + ACTIONS) * HIDDEN + HIDDEN * HIDDEN + HIDDEN)
    actor = OBS * HIDDEN + HIDDEN * HIDDEN + HIDDEN * 2 * ACTIONS
    goal = actor + critic  # next action, target critic
    learn_critic = critic + critic + (critic - 2 * (OBS + ACTIONS) * HIDDEN)  # forwards, weights, inputs
    learn_actor = (actor + critic) + critic + actor + (actor - OBS * HIDDEN)
    return 2.0 * (goal + learn_critic + learn_actor)


def main() -> None:
    algorithm = headrace.SAC(hidden=(HIDDEN, HIDDEN), batch_size=BATCH, policy_delay=1)
    spec = EnvSpec("bench", Box((OBS,)), Box((ACTIONS,), bounded=True), 8)
    graph = fuse(single(trace(algorithm, spec), Machine.detect())).graph
    cells = make_cells(algorithm, graph, 0)
    programs = Programs(graph, CellLayout(cells))
    learn = jax.jit(programs.learner(graph.where(domain="learn", kind="stage"), fused=True), donate_argnums=0)
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(FUSED, BATCH, *shape)).astype(np.float32)

    batches = jax.device_put(
        Batch(normal(OBS), np.tanh(normal(ACTIONS)), normal(), np.full_like(normal(), 0.99), normal(OBS), {})
    )
    values = {graph.domains[0].sources[0].id: jax.tree.leaves(batches)}
    keys = PassRng(bases(graph, 0, 0), np.uint32(0))
    held = [programs.cell_layout.flat(cells)]

    def update() -> None:
        held[0], report = learn(held[0], values, keys)
        jax.block_until_ready(report)

    matrix = rng.normal(size=(SIZE, SIZE)).astype(np.float32)
    device_matrix = jax.device_put(matrix)
    product = jax.jit(lambda a: a @ a)
    parts = {
        "update": update,
        "numpy": lambda: [matrix @ matrix for _ in range(PRODUCTS)],
        "xla": lambda: [product(device_matrix).block_until_ready() for _ in range(PRODUCTS)],
    }
    if CORES > 1:
        del parts["numpy"]  # its threads go on spinning after a product and take a core from whatever comes next
    seconds = interleaved(parts, 30)
    rates = {name: PRODUCTS * 2 * SIZE**3 / seconds[name] / 1e9 for name in parts if name != "update"}
    frames = FUSED * BATCH / seconds["update"]
    useful = frames * flops_per_frame() / 1e9
    report(
        f"learner-{CORES}core",
        {
            "cores": CORES,
            "MFLOP per replayed frame": flops_per_frame() / 1e6,
            "update frames/s": frames,
            "useful GFLOP/s": useful,
            **{f"GEMM, {name}, GFLOP/s": rate for name, rate in rates.items()},
            "update / GEMM limit": useful / max(rates.values()),
        },
    )


if __name__ == "__main__":
    main()
