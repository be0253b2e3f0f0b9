"""SAC in plain JAX, by hand, as fast as one can write it: the yardstick for headrace's own overhead.

Same network sizes, batch, fused updates, rate and environments as `SAC(policy_delay=1)` under the `single` policy.
"""

from __future__ import annotations

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

GAMMA, TAU, LR = 0.99, 0.005, 1e-3


def init_mlp(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    init = jax.nn.initializers.orthogonal(np.sqrt(2))
    return [(init(k, (i, o)), jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:], strict=False)]


def mlp(layers, x):
    for w, b in layers[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ layers[-1][0] + layers[-1][1]


def sample(actor, obs, key):
    mean, log_std = jnp.split(mlp(actor, obs), 2, axis=-1)
    log_std = jnp.clip(log_std, -5, 2)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), jnp.sum(-0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi) - squash, axis=-1)


def q_values(critics, obs, action):
    x = jnp.concatenate([obs, action], axis=-1)
    return jnp.stack([mlp(critic, x)[..., 0] for critic in critics])


def init(key, obs_size, action_size, hidden):
    adam = optax.adam(LR)
    k1, k2, k3 = jax.random.split(key, 3)
    actor = init_mlp(k1, (obs_size, *hidden, 2 * action_size))
    critic = [init_mlp(k, (obs_size + action_size, *hidden, 1)) for k in (k2, k3)]
    alpha = jnp.zeros(())
    return {
        "actor": actor,
        "critic": critic,
        "target": jax.tree.map(jnp.copy, critic),
        "alpha": alpha,
        "opt": (adam.init(actor), adam.init(critic), adam.init(alpha)),
        "key": key,
    }


def update(state, batch):
    adam = optax.adam(LR)
    key, k1, k2 = jax.random.split(state["key"], 3)
    actor, critic, target, log_alpha = state["actor"], state["critic"], state["target"], state["alpha"]
    actor_opt, critic_opt, alpha_opt = state["opt"]
    alpha = jnp.exp(log_alpha)
    next_action, next_log_prob = sample(actor, batch["next_obs"], k1)
    next_value = q_values(target, batch["next_obs"], next_action).min(axis=0) - alpha * next_log_prob
    goal = batch["reward"] + batch["discount"] * next_value

    def critic_loss(critic):
        return jnp.mean((q_values(critic, batch["obs"], batch["action"]) - goal) ** 2)

    loss, gradient = jax.value_and_grad(critic_loss)(critic)
    step, critic_opt = adam.update(gradient, critic_opt)
    critic = optax.apply_updates(critic, step)
    target = jax.tree.map(lambda t, c: t + TAU * (c - t), target, critic)

    def actor_loss(actor):
        action, log_prob = sample(actor, batch["obs"], k2)
        return jnp.mean(alpha * log_prob - q_values(critic, batch["obs"], action).min(axis=0)), jnp.mean(log_prob)

    (_, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(actor)
    step, actor_opt = adam.update(gradient, actor_opt)
    actor = optax.apply_updates(actor, step)
    entropy = -batch["action"].shape[-1]
    gradient = jax.grad(lambda log_alpha: -jnp.exp(log_alpha) * (log_prob + entropy))(log_alpha)
    step, alpha_opt = adam.update(gradient, alpha_opt)
    opt = (actor_opt, critic_opt, alpha_opt)
    new = {"actor": actor, "critic": critic, "target": target, "alpha": log_alpha + step, "opt": opt, "key": key}
    return new, loss


class PlainSAC:
    """Collects and learns in cycles; `cycle()` is what is timed."""

    def __init__(self, env_id, num_envs, hidden, batch_size, samples_per_insert, fused, warmup, capacity, seed=0):
        self.envs = [gymnasium.make(env_id, disable_env_checker=True) for _ in range(num_envs)]
        space = self.envs[0].action_space
        self.low, self.span = space.low, (space.high - space.low) / 2
        self.obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]).astype(np.float32)
        obs_size, action_size = self.obs.shape[1], space.shape[0]
        self.state = init(jax.random.key(seed), obs_size, action_size, hidden)
        self.act = jax.jit(lambda actor, obs, key, n: sample(actor, obs, jax.random.fold_in(key, n))[0])
        self.learn = jax.jit(lambda state, batches: jax.lax.scan(update, state, batches), donate_argnums=0)
        self.key = jax.random.key(seed + 1)
        self.rng = np.random.default_rng(seed)
        rows = partial(np.zeros, dtype=np.float32)
        self.store = {
            "obs": rows((capacity, obs_size)),
            "action": rows((capacity, action_size)),
            "reward": rows(capacity),
            "discount": rows(capacity),
            "next_obs": rows((capacity, obs_size)),
        }
        self.capacity, self.inserted, self.learned, self.steps = capacity, 0, 0, 0
        self.batch_size, self.per_insert, self.fused, self.warmup = batch_size, samples_per_insert, fused, warmup

    def step(self):
        n = len(self.envs)
        action = np.asarray(self.act(self.state["actor"], self.obs, self.key, np.uint32(self.steps)))
        scaled = self.low + (action + 1) * self.span
        at = self.inserted % self.capacity
        store = self.store
        store["obs"][at : at + n], store["action"][at : at + n] = self.obs, action
        for i, env in enumerate(self.envs):
            obs, reward, terminated, truncated, _ = env.step(scaled[i])
            store["next_obs"][at + i], store["reward"][at + i] = obs, reward
            store["discount"][at + i] = 0.0 if terminated else GAMMA
            self.obs[i] = env.reset()[0] if terminated or truncated else obs
        self.inserted += n
        self.steps += 1

    def cycle(self):
        size, fused = self.batch_size, self.fused
        while (self.inserted - self.warmup) * self.per_insert < (self.learned + fused) * size:
            self.step()
        rows = self.rng.integers(0, min(self.inserted, self.capacity), fused * size)
        batches = {name: held[rows].reshape(fused, size, *held.shape[1:]) for name, held in self.store.items()}
        self.state, loss = self.learn(self.state, batches)
        self.learned += fused
        return loss
