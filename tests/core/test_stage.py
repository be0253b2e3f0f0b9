"""stage: a plain function when called with everything, its dataflow read off its signature."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from headrace.core import Algorithm, Config, Reads, Writes, stage
from headrace.core.stage import Signature, tracing
from headrace.errors import LoopError


class Toy:
    """Stages need nothing of an algorithm but to be its methods."""

    scale = 3.0

    @stage
    def plain(self, x, y):
        """Adds."""
        return self.scale * x + y

    @stage
    def act(self, obs: jax.Array, actor: Reads, key: jax.Array) -> jax.Array:
        return actor(obs) + jax.random.normal(key, obs.shape)

    @stage
    def learn(self, batch, weight, target: Reads, critic: Writes, log_alpha: Writes, key):
        return (critic, log_alpha), {"loss": batch * weight}

    @stage
    def mixed(self, critic: Writes, batch, key, actor: Reads):
        return critic, {}

    @stage
    def unreadable(self, obs, actor: Undefined):  # noqa: F821
        return obs


def test_called_with_everything_it_is_the_function_it_decorates():
    toy = Toy()
    assert toy.plain(2.0, 1.0) == 7.0
    assert toy.plain(y=1.0, x=2.0) == 7.0
    key = jax.random.key(0)
    expected = 2 * jnp.ones(3) + jax.random.normal(key, (3,))
    assert jnp.array_equal(toy.act(jnp.ones(3), lambda x: 2 * x, key), expected)
    (critic, log_alpha), metrics = toy.learn(2.0, 5.0, None, "critic", "log_alpha", None)
    assert (critic, log_alpha, metrics) == ("critic", "log_alpha", {"loss": 10.0})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain", Signature(data=("x", "y"), reads=(), writes=(), wants_key=False)),
        ("act", Signature(data=("obs",), reads=("actor",), writes=(), wants_key=True)),
        ("learn", Signature(("batch", "weight"), ("target",), ("critic", "log_alpha"), True)),
        ("mixed", Signature(("batch",), ("actor",), ("critic",), True)),
    ],
)
def test_signature_is_read_off_text_annotations(name, expected):
    assert getattr(Toy(), name).signature == expected


def test_cells_are_reads_then_writes():
    assert Toy().learn.signature.cells == ("target", "critic", "log_alpha")


def test_stage_keeps_name_and_docstring_on_the_class():
    assert Toy.plain.name == "plain"
    assert Toy.plain.__doc__ == "Adds."
    assert Toy().plain.name == "plain"


def test_annotation_that_cannot_be_read_is_a_loop_error():
    with pytest.raises(LoopError, match=r"stage 'unreadable' has an annotation that cannot be read.*Undefined"):
        _ = Toy().unreadable.signature


def test_a_recorder_gets_the_data_and_options_and_only_inside_the_block():
    class Tracer:
        def stage(self, stage, data, options):
            return stage.name, data, options

    toy = Toy()
    with tracing(Tracer()):
        assert toy.plain(1.0, every=4) == ("plain", (1.0,), {"every": 4})
        with tracing(None):
            assert toy.plain(1.0, 0.0) == 3.0
        assert toy.plain(1.0)[0] == "plain"
    assert toy.plain(1.0, 0.0) == 3.0


def test_on_puts_other_cells_behind_its_arguments():
    toy = Toy()
    other = toy.learn.on(critic="critic_1", target="target_1")
    assert [other.cell(name) for name in other.signature.cells] == ["target_1", "critic_1", "log_alpha"]
    assert other.on(target="target_2").names == {"critic": "critic_1", "target": "target_2"}
    assert toy.learn.names == {}
    assert (other.name, other.signature) == ("learn", toy.learn.signature)
    (critic, log_alpha), metrics = other(2.0, 5.0, None, "critic", "log_alpha", None)
    assert (critic, log_alpha, metrics) == ("critic", "log_alpha", {"loss": 10.0})


def test_on_refuses_what_is_no_cell_of_the_stage():
    with pytest.raises(
        LoopError, match=r"stage 'learn' takes no cell 'critik'; did you mean 'critic'\? \(cells: target, crit"
    ):
        Toy().learn.on(critik="critic_1")
    with pytest.raises(LoopError, match=r"stage 'plain' takes no cell 'x' \(cells: none\)\."):
        Toy().plain.on(x="y")


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    """Settings."""

    size: int = 4
    """How big."""


class ToyAlgorithm(Algorithm[ToyConfig]):
    def cells(self, spec, key):
        return {}

    @stage
    def play(self, obs):
        return obs

    def loop(self):
        pass


def test_algorithm_takes_defaults_settings_or_a_whole_config():
    assert ToyAlgorithm().config == ToyConfig()
    assert ToyAlgorithm(size=5).config == ToyConfig(size=5)
    assert ToyAlgorithm(ToyConfig(size=6), num_envs="2").config == ToyConfig(size=6, num_envs=2)
    assert ToyAlgorithm().name == "toyalgorithm"


def test_algorithm_without_a_config_type_is_refused():
    class Bare(Algorithm):
        cells = play = loop = None

    with pytest.raises(LoopError, match=r"Bare does not say what its config is; declare it as 'class Bare"):
        Bare()
