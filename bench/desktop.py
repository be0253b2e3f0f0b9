"""SAC on HalfCheetah-v5 on one machine: `desktop` and `dual_device` against SBX, SB3 and the GEMM limit.

    bench/peers/setup.sh && python bench/desktop.py [rounds] [seconds]        defaults: 4 rounds of 12 s each

2x256, batch 256, 16 frames replayed for each step, an actor update for each of the critic's as theirs, both sides
running. Everything takes its turn, forwards and backwards, each in processes of its own. A ratio is the median over the
rounds, in each of which both sides ran, so that the machine's drift is in neither. The limit is the GEMM rate of all
cores at once, measured before and after each round, less the share of a core that the sampler used, over the useful
work of a frame (bench/learner.py).
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from learner import flops_per_frame
from measure import report

import headrace
from headrace.run.launch import tuned
from headrace.tune.trial import Speed, try_out

HERE = Path(__file__).parent
PEERS = Path(os.environ.get("PEERS", Path.home() / ".cache" / "headrace" / "peers"))
ENV = "HalfCheetah-v5"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 4
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 12.0
WARM = 10.0
REFINED = 45.0
"""Seconds in which the tuner's choice is refined on the running system."""
ALGORITHM = headrace.SAC(hidden=(256, 256), batch_size=256, samples_per_insert=16, policy_delay=1)


def prepare(policy: str) -> None:
    """A first run, in which the tuner measures and refines."""
    with tempfile.TemporaryDirectory() as folder:
        headrace.train(ALGORITHM, ENV, policy=policy, seconds=REFINED, out=Path(folder) / "run", evaluate=False)


def ours(policy: str) -> Speed:
    """As `headrace train --policy P` runs it: with what the tuner chose and refined in an earlier run."""
    choice = tuned(ALGORITHM, ENV, policy)
    algorithm = choice.settle(ALGORITHM)
    plan = choice.place(headrace.plan(algorithm, ENV, policy, replicas=choice.replicas))
    return try_out(plan, algorithm, ENV, seconds=SECONDS, warm=WARM)


def peer(name: str) -> Speed:
    words = [PEERS / name / "bin" / "python", HERE / "peers" / "run.py", "sac", name]
    words += ["--env", ENV, "--seconds", str(SECONDS), "--warm", str(WARM)]
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for _ in range(3):
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=bare)
        line = json.loads(done.stdout.splitlines()[-1])
        if line["others"] < 0.1:
            break
        print(f"{name}: other processes took {line['others']} cores; once more")
    else:
        sys.exit("the machine is not quiet: other processes would slow the peers down; stop them and try again.")
    return Speed(line["steps_per_s"], line["frames_per_s"], {})


def gemm() -> float:
    """GFLOP/s of all cores together, each with one thread."""
    cores = sorted(os.sched_getaffinity(0))
    words = [sys.executable, str(HERE / "gemm.py")]
    running = [subprocess.Popen([*words, str(core), "6"], stdout=subprocess.PIPE, text=True) for core in cores]
    return sum(float(process.communicate()[0]) for process in running)


def main() -> None:
    turns = {
        "sbx": lambda: peer("sbx"),
        "dual_device": lambda: ours("dual_device"),
        "desktop": lambda: ours("desktop"),
        "sb3": lambda: peer("sb3"),
    }
    for policy in ("desktop", "dual_device"):
        prepare(policy)
    seen: dict[str, list[Speed]] = {name: [] for name in turns}
    limits = [gemm()]
    for i in range(ROUNDS):
        for name in list(turns) if i % 2 == 0 else reversed(list(turns)):
            seen[name].append(turns[name]())
            speed = seen[name][-1]
            print(f"{name:>12}: {speed.update_frames:7.0f} frames/s, {speed.env_steps:6.0f} steps/s  {speed.busy}")
        limits.append(gemm())
    frames = {name: statistics.median(speed.update_frames for speed in speeds) for name, speeds in seen.items()}
    steps = {name: statistics.median(speed.env_steps for speed in speeds) for name, speeds in seen.items()}
    best = max(("desktop", "dual_device"), key=lambda name: frames[name])
    sampling = statistics.median(
        sum(share for name, share in speed.busy.items() if name.startswith("sampler")) for speed in seen[best]
    )
    cores = len(os.sched_getaffinity(0))
    free = [(before + after) / 2 * (1 - sampling / cores) for before, after in itertools.pairwise(limits)]
    limit = [rate * 1e9 / flops_per_frame() for rate in free]

    def ratio(name: str, other: str, what: str = "update_frames") -> float:
        pairs = zip(seen[name], seen[other], strict=True)
        return statistics.median(getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs)

    report(
        "desktop",
        {
            **{f"{name}, update frames/s": value for name, value in frames.items()},
            **{f"{name}, env steps/s": value for name, value in steps.items()},
            "the better of ours": best,
            "frames, best / SBX (at least 1.35)": ratio(best, "sbx"),
            "frames, best / SB3 (at least 2.6)": ratio(best, "sb3"),
            "steps, best / SBX (at least 10)": ratio(best, "sbx", "env_steps"),
            "steps, best / SB3 (at least 10)": ratio(best, "sb3", "env_steps"),
            "GEMM, all cores at once, GFLOP/s": statistics.median(limits),
            "sampler's share of a core": sampling,
            "frames, best / GEMM limit (at least 0.8)": statistics.median(
                speed.update_frames / most for speed, most in zip(seen[best], limit, strict=True)
            ),
            "dual_device / desktop's one-core learner (at least 1.25)": ratio("dual_device", "desktop"),
        },
    )


if __name__ == "__main__":
    main()
