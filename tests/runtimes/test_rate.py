"""The rate a loop asks for is held, also where one pass earns more learning than one program runs."""

from __future__ import annotations

import pytest

import headrace
from headrace.runtimes import inline


@pytest.mark.parametrize(
    ("env", "per_insert", "num_envs"),
    [
        ("CartPole-v1", 64.0, 16),
        ("CartPole-v1", 2.5, 4),
        ("CartPole-v1", 0.5, 2),
        ("gymnax:CartPole-v1", 2.5, 4),
    ],
)
def test_replayed_per_inserted_is_what_was_asked_for(env: str, per_insert: float, num_envs: int) -> None:
    algorithm = headrace.DQN(
        samples_per_insert=per_insert,
        num_envs=num_envs,
        batch_size=16,
        warmup=32,
        hidden=(4,),
        replay_capacity=2_000,
    )
    runtime = inline(headrace.plan(algorithm, env, "single"), algorithm, env, seed=0)
    progress = runtime.progress
    while progress.env_steps < 400:
        runtime.advance()
        behind = (progress.env_steps - 32) * per_insert - progress.update_frames
        assert behind >= 0 or progress.env_steps <= 32
        # Not yet earned: less than one program of fused passes, and what one more pass would have brought.
        assert behind < 8 * 16 + num_envs * per_insert
    assert progress.update_frames > 0
