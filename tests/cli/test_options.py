"""Options are fields: each has its help under it, and what is not given is left to the dataclass and to the run."""

from __future__ import annotations

import inspect
from dataclasses import MISSING

import pytest

import headrace
from headrace.cli.commands import PASSED_ON
from headrace.cli.options import COMMANDS, Compare, Eval, Train
from headrace.cli.parser import parse
from headrace.errors import UsageError
from headrace.runtimes import Options
from headrace.settings.values import askable, field_docs


@pytest.mark.parametrize("kind", [*COMMANDS.values(), Options])
def test_every_option_has_help_and_says_its_default(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for name in askable(kind) if not field_docs(kind).get(name)] == []
    with pytest.raises(SystemExit):
        parse(["train" if kind is Options else kind.__name__.lower(), "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for name, (field, _, how) in askable(kind).items():
        assert field.default is MISSING or not field.default or f"(default: {field.default})" in said
        assert not field.kw_only or (how.flag or f"--{name.replace('_', '-')}") in said


def test_what_is_typed_becomes_the_fields() -> None:
    words = "sac Pendulum-v1 --steps 1e4 --set a=1 b=2 --seed 12345678901234567890 --tau 0.1 --seconds inf --no-tune"
    more = "--no-eval --eval-every 2e3 --log-info x y --callback a:b --set c=3 --callback c:d --view ring --debug"
    found = parse(["train", *words.split(), *more.split()])
    given = {"evaluate": False, "eval_every": 2000, "log_info": ["x", "y"], "view": "ring", "debug": True}
    assert found == Train(
        "sac", "Pendulum-v1", steps=10_000, settings=["a=1", "b=2", "c=3", "tau=0.1"], seed=12345678901234567890,
        seconds=float("inf"), tune=False, callbacks=["a:b", "c:d"], options=given
    )  # fmt: skip
    assert type(found.steps) is int
    assert parse(["eval", "x", "y", "--best"]) == Eval(["x", "y"], best=True)
    assert parse(["compare", "x"]) == Compare(["x"])
    assert parse(["train"]) == Train()


def test_what_is_passed_on_is_what_python_takes() -> None:
    assert {*PASSED_ON} <= {*inspect.signature(headrace.train).parameters} & {*askable(Train)}
    assert not {*askable(Train)} & {*askable(Options)}
    assert {"steps", "videos"}.isdisjoint(askable(Options))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"view": "wall"}, "--view is off, ring or window, got 'wall'."),
        ({"record_format": "avi"}, "--record-format is mp4 or gif, got 'avi'."),
        ({"eval_every": "often"}, "--eval-every takes a whole number or none, got 'often'."),
        ({"hang_seconds": 0.0}, "--hang-seconds must be above 0, got 0.0."),
        ({"checkpoint_every": float("nan")}, "--checkpoint-every must be above 0, got nan."),
        ({"restarts": -1}, "--restarts must be at least 0, got -1."),
        ({"log_info": ["success_rate"]}, "--log-info success_rate would take the place of rollout/success_rate"),
    ],
)
def test_options_refuse_nonsense_at_birth(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        Options(**given)  # type: ignore[arg-type]
    assert str(refused.value).startswith(sentence)
    assert Options(eval_every=1e4).eval_every == 10_000  # type: ignore[arg-type]
