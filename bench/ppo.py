"""PPO on HalfCheetah-v5 with SB3's own hyper-parameters, against SBX and Sample Factory; and one program against hosts.

    bench/peers/setup.sh && python bench/ppo.py [rounds] [seconds]        defaults: 3 rounds of 12 s each

8 environments, 256 steps, 64x64, 10 epochs, batches of 64. The policy is the fastest of those that fit, found first.
Then `device_only` on gymnax:CartPole-v1 against the fastest policy on CartPole-v1, both with the same settings: four
epochs over each trajectory, where learning takes most of the time on either side, and one. Everything takes its turn,
forwards and backwards; a ratio is the median over the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import report

import headrace
from headrace.errors import HeadraceError
from headrace.policies import POLICIES
from headrace.tune.trial import try_out

HERE = Path(__file__).parent
PEERS = Path(os.environ.get("PEERS", Path.home() / ".cache" / "headrace" / "peers"))
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 12.0
CHEETAH = headrace.PPO(num_envs=8, horizon=256, hidden=(64, 64), epochs=10, minibatch_size=64)
CARTPOLE = {
    "four epochs": headrace.PPO(num_envs=64, horizon=32, minibatch_size=256, epochs=4),
    "one epoch": headrace.PPO(num_envs=512, horizon=16, minibatch_size=2048, epochs=1),
}


def ours(algorithm: headrace.PPO, env: str, policy: str, seconds: float = SECONDS) -> float:
    return try_out(headrace.plan(algorithm, env, policy), algorithm, env, seconds=seconds, warm=4).env_steps


def fastest(algorithm: headrace.PPO, env: str) -> str:
    seen = {}
    for policy in POLICIES:
        try:
            seen[policy] = ours(algorithm, env, policy, seconds=5)
        except HeadraceError as error:
            print(f"{env}: {policy}: {error}")
            continue
        print(f"{env}: {policy}: {seen[policy]:,.0f} steps/s", flush=True)
    return max(seen, key=lambda policy: seen[policy])


def peer(*words: str) -> float:
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    more = ["--seconds", str(SECONDS), "--warm", "6"]
    done = subprocess.run([*words, *more], capture_output=True, text=True, check=True, env=bare)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_s"])


def main() -> None:
    best = fastest(CHEETAH, "HalfCheetah-v5")
    hosts = {what: fastest(algorithm, "CartPole-v1") for what, algorithm in CARTPOLE.items()}
    turns: dict[str, Callable[[], float]] = {
        "sbx": lambda: peer(f"{PEERS}/sbx/bin/python", f"{HERE}/peers/run.py", "ppo", "sbx", "--env", "HalfCheetah-v5"),
        "headrace": lambda: ours(CHEETAH, "HalfCheetah-v5", best),
        "sample factory": lambda: peer(f"{PEERS}/sf/bin/python", f"{HERE}/peers/factory.py"),
    }
    for what, algorithm in CARTPOLE.items():
        turns[f"host, {what}"] = partial(ours, algorithm, "CartPole-v1", hosts[what])
        turns[f"device_only, {what}"] = partial(ours, algorithm, "gymnax:CartPole-v1", "device_only")
    seen: dict[str, list[float]] = {name: [] for name in turns}
    for i in range(ROUNDS):
        for name in list(turns) if i % 2 == 0 else reversed(list(turns)):
            seen[name].append(turns[name]())
            print(f"{name}: {seen[name][-1]:,.0f} steps/s", flush=True)

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(seen[one], seen[other], strict=True))

    report(
        "ppo",
        {
            **{f"{name}, env steps/s": statistics.median(speeds) for name, speeds in seen.items()},
            "policy on HalfCheetah-v5": best,
            **{f"policy on CartPole-v1, {what}": hosts[what] for what in CARTPOLE},
            "steps, headrace / SBX (at least 2.5)": ratio("headrace", "sbx"),
            "steps, headrace / Sample Factory (at least 3)": ratio("headrace", "sample factory"),
            **{
                f"steps, device_only / fastest host policy, {what} (at least 8)": ratio(
                    f"device_only, {what}", f"host, {what}"
                )
                for what in CARTPOLE
            },
        },
    )


if __name__ == "__main__":
    main()
