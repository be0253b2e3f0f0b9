"""PPO in plain JAX, by hand, as fast as one can write it: the yardstick for headrace's own overhead.

Same network sizes, horizon, epochs, minibatches, normalisation and environments as `PPO()` under `single`.
"""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from plain_sac import init_mlp

GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


def mlp(layers, x):
    for w, b in layers[:-1]:
        x = jnp.tanh(x @ w + b)
    return x @ layers[-1][0] + layers[-1][1]


def merge(moments, values):
    mean, var, count = moments
    values = values.reshape(-1, *mean.shape)
    n = values.shape[0]
    gap, total = values.mean(axis=0) - mean, count + n
    square = var * count + values.var(axis=0) * n + gap**2 * count * n / total
    return mean + gap * n / total, square / total, total


def normalise(moments, obs):
    return jnp.clip((obs - moments[0]) / jnp.sqrt(moments[1] + 1e-8), -10, 10)


class PlainPPO:
    """Collects and learns in cycles; `cycle()` is what is timed. Discrete actions."""

    def __init__(self, env_id, num_envs, hidden, horizon, epochs, minibatch_size, learning_rate, seed=0):
        self.envs = [gymnasium.make(env_id, disable_env_checker=True) for _ in range(num_envs)]
        self.obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]).astype(np.float32)
        size, actions = self.obs.shape[1], int(self.envs[0].action_space.n)
        self.horizon, self.steps = horizon, 0
        adam = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(learning_rate, eps=1e-5))
        k1, k2, self.key = jax.random.split(jax.random.key(seed), 3)
        actor, critic = init_mlp(k1, (size, *hidden, actions)), init_mlp(k2, (size, *hidden, 1))
        moments = (jnp.zeros(size), jnp.ones(size), jnp.asarray(1e-4))
        scale = (jnp.zeros(()), jnp.ones(()), jnp.asarray(1e-4))
        self.state = (actor, critic, adam.init(actor), adam.init(critic), moments, scale)
        shape = (horizon, num_envs)
        self.buffer = {
            "obs": np.zeros((*shape, size), np.float32),
            "next_obs": np.zeros((*shape, size), np.float32),
            "action": np.zeros(shape, np.int32),
            "log_prob": np.zeros(shape, np.float32),
            "reward": np.zeros(shape, np.float32),
            "terminated": np.zeros(shape, bool),
            "truncated": np.zeros(shape, bool),
        }

        @jax.jit
        def act(actor, moments, obs, key, number):
            log_p = jax.nn.log_softmax(mlp(actor, normalise(moments, obs)))
            action = jax.random.categorical(jax.random.fold_in(key, number), log_p)
            return action.astype(jnp.int32), jnp.take_along_axis(log_p, action[:, None], axis=-1)[:, 0]

        def learn(state, data, key):
            actor, critic, actor_opt, critic_opt, moments, scale = state
            obs, next_obs = normalise(moments, data["obs"]), normalise(moments, data["next_obs"])
            done = data["terminated"] | data["truncated"]

            def forward(past, now):
                total = GAMMA * past + now[0]
                return total * ~now[1], total

            _, sums = jax.lax.scan(forward, jnp.zeros(num_envs), (data["reward"], done))
            scale = merge(scale, sums)
            reward = data["reward"] / jnp.sqrt(scale[1] + 1e-8)
            values = mlp(critic, obs)[..., 0]
            errors = reward + GAMMA * ~data["terminated"] * mlp(critic, next_obs)[..., 0] - values

            def back(later, now):
                advantage = now[0] + GAMMA * LAMBDA * ~now[1] * later
                return advantage, advantage

            _, advantages = jax.lax.scan(back, jnp.zeros(num_envs), (errors, done), reverse=True)
            flat = (obs, data["action"], data["log_prob"], advantages, values + advantages)
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), flat)

            def minibatch(cells, rows):
                actor, critic, actor_opt, critic_opt = cells
                obs, action, old, advantage, target = jax.tree.map(lambda x: x[rows], flat)
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

                def actor_loss(actor):
                    log_p = jax.nn.log_softmax(mlp(actor, obs))
                    ratio = jnp.exp(jnp.take_along_axis(log_p, action[:, None], axis=-1)[:, 0] - old)
                    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
                    return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))

                loss, gradient = jax.value_and_grad(actor_loss)(actor)
                step, actor_opt = adam.update(gradient, actor_opt)
                actor = optax.apply_updates(actor, step)
                gradient = jax.grad(lambda critic: jnp.mean((mlp(critic, obs)[..., 0] - target) ** 2))(critic)
                step, critic_opt = adam.update(gradient, critic_opt)
                return (actor, optax.apply_updates(critic, step), actor_opt, critic_opt), loss

            def epoch(cells, key):
                rows = jax.random.permutation(key, horizon * num_envs).reshape(-1, minibatch_size)
                return jax.lax.scan(minibatch, cells, rows)

            cells = (actor, critic, actor_opt, critic_opt)
            cells, loss = jax.lax.scan(epoch, cells, jax.random.split(key, epochs))
            return (*cells, merge(moments, data["obs"]), scale), loss.mean()

        self.act, self.learn = act, jax.jit(learn, donate_argnums=0)

    def cycle(self):
        buffer = self.buffer
        for t in range(self.horizon):
            actor, moments = self.state[0], self.state[4]
            chosen = self.act(actor, moments, self.obs, self.key, np.uint32(self.steps))
            action, log_prob = (np.asarray(x) for x in chosen)
            buffer["obs"][t], buffer["action"][t], buffer["log_prob"][t] = self.obs, action, log_prob
            for i, env in enumerate(self.envs):
                obs, reward, terminated, truncated, _ = env.step(action[i])
                buffer["next_obs"][t, i], buffer["reward"][t, i] = obs, reward
                buffer["terminated"][t, i], buffer["truncated"][t, i] = terminated, truncated
                self.obs[i] = env.reset()[0] if terminated or truncated else obs
            self.steps += 1
        self.state, loss = self.learn(self.state, buffer, jax.random.fold_in(self.key, self.steps))
        return loss
