"""Sample Factory's PPO (APPO, asynchronous, its defaults) with SB3's hyper-parameters: one JSON line of rates.

    $PEERS/sf/bin/python bench/peers/factory.py [--env HalfCheetah-v4] [--seconds 20] [--warm 10]

8 environments on as many workers as cores, 2048 steps an iteration, 64x64, 10 epochs, batches of 64. Its
batches hold whole rollouts, so these have 64 steps here. Its gymnasium (0.29) has no HalfCheetah-v5; v4 is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

FRAMES = re.compile(r"Total num frames: (\d+)")


def make(name: str, cfg: object, env_config: object, render_mode: str | None = None) -> object:
    import gymnasium

    return gymnasium.make(name)


def child(env: str, folder: str) -> None:
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import run_rl

    register_env(env, make)
    cores = len(os.sched_getaffinity(0))
    words = f"""--algo=APPO --env={env} --device=cpu --num_workers={cores} --num_envs_per_worker={8 // cores}
        --rollout=64 --batch_size=64 --num_batches_per_epoch=32 --num_epochs=10 --use_rnn=False
        --encoder_mlp_layers 64 64 --nonlinearity=tanh
        --train_dir={folder} --experiment=bench --with_wandb=False --save_every_sec=100000
        --normalize_input=True --experiment_summaries_interval=5 --serial_mode=False --restart_behavior=overwrite"""
    parser, _ = parse_sf_args(words.split())
    run_rl(parse_full_cfg(parser, words.split()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="HalfCheetah-v4")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "child", options.env, folder]
        running = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, start_new_session=True
        )
        marks: list[tuple[float, int]] = []
        assert running.stdout is not None
        said = []
        for line in running.stdout:
            said.append(line)
            found = FRAMES.search(line)
            if found and int(found[1]) > 0:
                marks.append((time.monotonic(), int(found[1])))
                if marks[-1][0] - marks[0][0] > options.warm + options.seconds:
                    break
        os.killpg(running.pid, signal.SIGKILL)  # its workers would go on without it
        running.wait()
        if len(marks) < 2:
            sys.exit("".join(said[-20:]))
    begun = next(mark for mark in marks if mark[0] - marks[0][0] >= options.warm)
    rate = (marks[-1][1] - begun[1]) / (marks[-1][0] - begun[0])
    print(json.dumps({"peer": "sample-factory", "env": options.env, "steps_per_s": round(rate, 1)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3])
    else:
        main()
