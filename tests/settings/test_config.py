"""config: text in, typed and documented settings out, nonsense refused with a sentence."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algorithms import (
    ALGORITHMS,
    DQN,
    PPO,
    SAC,
    TD3,
    A3CConfig,
    DQNConfig,
    IMPALAConfig,
    MAPPOConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
)
from headrace.errors import ConfigError, UsageError
from headrace.nets import MLP
from headrace.settings.config import Config
from headrace.settings.objects import load_object, object_path
from headrace.settings.values import field_docs, from_json, override, parse, to_json

CONFIGS = (SACConfig, TD3Config, DQNConfig, PPOConfig, A3CConfig, IMPALAConfig, MAPPOConfig)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hidden", "64,64", (64, 64)),
        ("hidden", "64", (64,)),
        ("hidden", "(32, 16, 8)", (32, 16, 8)),
        ("hidden", "[32, 16]", (32, 16)),
        ("learning_rate", "3e-4", 3e-4),
        ("learning_rate", "1", 1),
        ("replay_capacity", "1e6", 1_000_000),
        ("replay_capacity", "100_000", 100_000),
        ("double", "false", False),
        ("double", "True", True),
        ("activation", "tanh", "tanh"),
        ("network", "headrace.nets:MLP", MLP),
        ("network", "none", None),
    ],
)
def test_text_is_read_as_the_type_of_its_field(name, text, value):
    found = getattr(DQN(**{name: text}).config, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [[64, 64], (64, 64)])
def test_hidden_sizes_may_be_a_list_as_the_message_says(value):
    assert DQN(hidden=value).config.hidden == (64, 64)


@pytest.mark.parametrize(
    ("settings_", "sentence"),
    [
        ({"batch_size": "abc"}, r"batch_size takes a whole number, got 'abc'\."),
        ({"batch_size": 1.5}, r"batch_size takes a whole number, got 1\.5\."),
        ({"batch_size": "64.5"}, r"batch_size takes a whole number, got 64\.5\."),
        ({"batch_size": True}, r"batch_size takes a whole number, got True\."),
        ({"hidden": "64,x"}, r"hidden takes a list of whole numbers such as 256,256, got '64,x'\."),
        ({"hidden": "64,0"}, r"hidden=\(64, 0\) must be sizes of at least 1\."),
        ({"double": "maybe"}, r"double takes true or false, got 'maybe'\."),
        ({"warmup": 100}, r"warmup=100 must be at least batch_size=256\."),
        ({"warmup": 300, "replay_capacity": 299}, r"replay_capacity=299 must be at least warmup=300\."),
        ({"gamma": 1.5}, r"gamma=1\.5 must lie between 0 and 1\."),
        ({"gamma": float("nan")}, r"gamma=nan must lie between 0 and 1\."),
        ({"learning_rate": 0.0}, r"learning_rate=0\.0 must be above 0\."),
        ({"learning_rate": float("nan")}, r"learning_rate=nan must be above 0\."),
        ({"samples_per_insert": 0.0}, r"samples_per_insert=0\.0 must be above 0\."),
        ({"num_envs": 0}, r"num_envs=0 must be at least 1\."),
        ({"n_step": 0}, r"n_step=0 must be at least 1\."),
        ({"tau": 2.0}, r"tau=2\.0 must lie between 0 and 1\."),
        ({"network": "no_such_module:Net"}, r"'no_such_module:Net' cannot be (imported|loaded)"),
        ({"network": "headrace.nets:Nope"}, r"'headrace.nets:Nope' cannot be (imported|loaded)"),
    ],
)
def test_nonsense_is_refused_at_birth(settings_, sentence):
    with pytest.raises(ConfigError, match=sentence):
        DQN(**settings_)


def test_unknown_setting_names_the_nearest_and_every_valid_one():
    with pytest.raises(ConfigError) as refused:
        SAC(batchsize=3)
    text = str(refused.value)
    assert "SACConfig has no setting 'batchsize'; did you mean 'batch_size'?" in text
    for field in dataclasses.fields(SACConfig):
        assert field.name in text


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: PPO(horizon=10, num_envs=3, minibatch_size=7),
            r"minibatch_size=7 must divide horizon \* num_envs = 10 \* 3 = 30",
        ),
        (lambda: PPO(gae_lambda=1.2), r"gae_lambda=1\.2 must lie between 0 and 1"),
        (lambda: PPO(clip_range=-0.1), r"clip_range=-0\.1 must be at least 0"),
        (lambda: PPO(epochs=0), r"epochs=0 must be at least 1"),
        (lambda: PPO(horizon=0), r"horizon=0 must be at least 1"),
        (lambda: SAC(policy_delay=0), r"policy_delay=0 must be at least 1"),
        (lambda: TD3(target_noise=-1.0), r"target_noise=-1\.0 must be at least 0"),
        (lambda: TD3(exploration_noise=-1.0), r"exploration_noise=-1\.0 must be at least 0"),
        (lambda: DQN(exploration=1.5), r"exploration=1\.5 must lie between 0 and 1"),
        (lambda: DQN(exploration="linear:1.5:0:10"), r"exploration=linear:1\.5:0\.0:10 must lie between 0 and 1"),
        # Each of these trains on nothing but NaN, or not at all, when it is let through.
        (lambda: SAC(initial_alpha=0.0), r"initial_alpha"),
        (lambda: SAC(initial_alpha=-1.0), r"initial_alpha"),
        (lambda: TD3(target_noise_clip=-0.5), r"target_noise_clip"),
        (lambda: PPO(max_grad_norm=-1.0), r"max_grad_norm"),
        (lambda: DQN(samples_per_insert=float("inf")), r"samples_per_insert"),
    ],
)
def test_each_algorithm_refuses_its_own_nonsense(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_config_error_is_a_usage_error():
    assert issubclass(ConfigError, UsageError)


@pytest.mark.parametrize("cls", CONFIGS)
def test_every_field_is_documented_where_it_is_declared(cls):
    docs = field_docs(cls)
    missing = [field.name for field in dataclasses.fields(cls) if not docs.get(field.name)]
    assert missing == []
    assert docs["num_envs"] == "Environments stepped side by side, over all replicas together."


def test_docs_of_a_redeclared_field_are_the_nearest():
    assert field_docs(SACConfig)["policy_delay"] == "Critic updates for each actor update."
    assert field_docs(PPOConfig)["hidden"] == "Sizes of the hidden layers."


@pytest.mark.parametrize("cls", CONFIGS)
def test_configs_are_frozen(cls):
    with pytest.raises(dataclasses.FrozenInstanceError):
        cls().num_envs = 3


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_json_and_back_is_the_same_config(name):
    config = ALGORITHMS[name](hidden="32,16", network="headrace.nets:MLP", gamma=0.9).config
    plain = to_json(config)
    assert plain["hidden"] == [32, 16]
    assert plain["network"] == "headrace.nets.mlp:MLP"
    assert from_json(type(config), plain) == config


def test_objects_have_paths_and_paths_have_objects():
    assert object_path(DQN) == "headrace.algorithms.dqn:DQN"
    assert load_object("headrace.algorithms.dqn:DQN") is DQN


def test_override_leaves_the_config_it_was_given():
    config = DQNConfig()
    assert override(config, {"gamma": 0.5}).gamma == 0.5
    assert config.gamma == 0.99
    assert override(config, {}) == config


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=12), st.sampled_from([int, float, bool, str, tuple[int, ...], int | None]))
def test_any_text_is_read_or_refused_never_a_crash(text, hint):
    with suppress(ConfigError):
        parse("setting", text, hint)


@pytest.mark.parametrize("text", ["{[]: 1}", "[" * 300, "-" * 300 + "1", "1 2"])
def test_text_that_python_cannot_evaluate_is_refused(text):
    with pytest.raises(ConfigError):
        override(DQNConfig(), {"batch_size": text})


@settings(max_examples=50, deadline=None)
@given(st.integers(-3, 40), st.integers(1, 20), st.integers(1, 8))
def test_minibatches_are_accepted_exactly_when_they_divide(minibatch, horizon, num_envs):
    fits = minibatch >= 1 and (horizon * num_envs) % minibatch == 0
    try:
        PPO(minibatch_size=minibatch, horizon=horizon, num_envs=num_envs)
    except ConfigError:
        assert not fits
    else:
        assert fits


def test_a_config_of_ones_own_refuses_by_check():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(Config):
        low: int = 1
        high: int = 2

        def check(self):
            self.at_least("high", self.low, f"low={self.low}")

    assert Mine(low=2).high == 2
    with pytest.raises(ConfigError, match=r"^high=2 must be at least low=3\.$"):
        Mine(low=3)
