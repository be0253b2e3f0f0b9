"""Crossovers: environment steps/s of every policy that fits, on workloads that differ in what is dear, and `auto`.

    python bench/policies.py [seconds] [workload ...]        default: 5 s for each, all workloads

Of workloads that are not named, what was recorded stays. Untuned plans, nobody watching. Where `auto` chose another
policy than the fastest seen, the two take turns again, so that the best is not only the luckiest.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from measure import report

import headrace
from headrace.errors import HeadraceError
from headrace.policies import POLICIES
from headrace.tune import auto
from headrace.tune.trial import try_out

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
WORKLOADS = {
    "cheap env, small net": (headrace.PPO(), "CartPole-v1"),
    "dear env, small net": (headrace.PPO(), "HalfCheetah-v5"),
    "dearest env, small net": (headrace.PPO(num_envs=8, horizon=64), "Humanoid-v5"),
    "cheap env, large net, on-policy": (headrace.PPO(hidden=(512, 512)), "CartPole-v1"),
    "cheap env, replay": (headrace.DQN(), "CartPole-v1"),
    "dear env, large net, replay": (headrace.SAC(), "HalfCheetah-v5"),
    "JAX env": (headrace.PPO(num_envs=64, horizon=32), "gymnax:CartPole-v1"),
    "three agents": (headrace.MAPPO(share_parameters=False), "pettingzoo:mpe2.simple_spread_v3"),
}
CHOSEN = sys.argv[2:] or list(WORKLOADS)


def steps(algorithm: headrace.Algorithm, env: str, policy: str) -> float:
    plan = headrace.plan(algorithm, env, policy)
    return try_out(plan, algorithm, env, seconds=SECONDS, warm=2).env_steps


def kept() -> dict[str, object]:
    """What is recorded of the workloads that are not measured now."""
    others = tuple(f"{what} (" for what in WORKLOADS if what not in CHOSEN)
    path = Path(__file__).parent / "results" / "policies.json"
    recorded = json.loads(path.read_text()) if path.exists() and others else {}
    return {name: value for name, value in recorded.items() if name.startswith(others)}


def main() -> None:
    figures = kept()
    for what in CHOSEN:
        algorithm, env = WORKLOADS[what]
        name = f"{what} ({algorithm.name} {env})"
        seen = {}
        for policy in POLICIES:
            try:
                seen[policy] = steps(algorithm, env, policy)
            except HeadraceError as error:
                print(f"{name}: {policy}: {error}", flush=True)
                continue
            figures[f"{name}, {policy}, env steps/s"] = seen[policy]
            print(f"{name}: {policy}: {seen[policy]:,.0f} env steps/s", flush=True)
        best = max(seen, key=lambda policy: seen[policy])
        chosen = auto.choose(algorithm, env)
        ratio = 1.0
        if chosen != best:
            again: dict[str, list[float]] = {best: [], chosen: []}
            for policy in (best, chosen, chosen, best):
                again[policy].append(steps(algorithm, env, policy))
            ratio = statistics.median(again[chosen]) / statistics.median(again[best])
        figures |= {f"{name}, fastest": best, f"{name}, auto": chosen, f"{name}, auto / fastest (at least 0.93)": ratio}
        print(f"{name}: fastest {best}, auto {chosen}: {ratio:.3f}", flush=True)
    winners = {str(value) for name, value in figures.items() if name.endswith(", fastest")}
    figures["policies that win somewhere"] = ", ".join(sorted(winners))
    report("policies", figures)


if __name__ == "__main__":
    main()
