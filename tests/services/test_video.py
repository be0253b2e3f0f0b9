"""video: what was added is what is read back, whole or not at all, frame by frame and in silence."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import headrace
from headrace.cli.video import record
from headrace.compile.cells import make_cells
from headrace.errors import UsageError
from headrace.run.run import Run
from headrace.services.video import FORMATS, Video, check_file

pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
imageio = pytest.importorskip("imageio.v3")


@pytest.fixture(autouse=True)
def _no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """imageio's reader forks to keep Ctrl-C from ffmpeg, of which JAX warns."""
    monkeypatch.setenv("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")


def read(path: Path) -> np.ndarray:
    """Every frame of a video, uint8[count, height, width, 3]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # imageio leaves its pipes to the collector
        return np.stack([frame[..., :3] for frame in imageio.imiter(path)])


def facts(path: Path, index: int = 0) -> dict[str, Any]:
    """What a video says about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        return imageio.immeta(path, index=index)


def ramp(count: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """Frames that grow brighter, with a white square at the top left."""
    frames = []
    for i in range(count):
        frame = np.full((height, width, 3), (10 * i, 100, 50), np.uint8)
        frame[:8, :8] = 255
        frames.append(frame)
    return frames


def write(path: Path, frames: list[np.ndarray], fps: float = 20) -> None:
    with Video(path, fps) as video:
        for frame in frames:
            video.add(frame)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_was_added_is_read_back_and_nothing_is_said(tmp_path: Path, capfd, suffix: str) -> None:
    path = tmp_path / f"play{suffix}"
    frames = ramp(12)
    write(path, frames)
    assert files(path.parent) == [path.name]
    assert capfd.readouterr() == ("", "")
    found = read(path)
    assert found.shape == (12, 48, 64, 3)
    assert np.abs(found.astype(int) - np.stack(frames)).mean() < 4.0


def test_an_mp4_keeps_its_speed_and_plays_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "play.mp4"
    write(path, ramp(25), fps=12.5)
    meta = facts(path)
    assert meta["fps"] == 12.5
    assert meta["duration"] == 2.0
    assert meta["codec"] == "h264"
    assert meta["pix_fmt"].startswith("yuv420p")
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")  # so that it starts before it is loaded


@pytest.mark.parametrize(("fps", "frames", "seconds"), [(20, 40, 2.0), (30, 60, 2.0), (120, 60, 0.5)])
def test_a_gif_takes_the_time_it_should_and_goes_round(tmp_path: Path, fps: int, frames: int, seconds: float) -> None:
    path = tmp_path / "play.gif"
    write(path, [(np.arange(16 * 16 * 3) + 7 * i).astype(np.uint8).reshape(16, 16, 3) for i in range(frames)], fps)
    shown = [facts(path, index=i)["duration"] for i in range(len(read(path)))]
    assert sum(shown) / 1000 == pytest.approx(seconds, abs=0.05)
    assert min(shown) >= 20
    assert facts(path)["loop"] == 0


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(("height", "width"), [(33, 47), (1, 1), (100, 37)])
def test_any_size_will_do_and_nothing_is_stretched(tmp_path: Path, suffix: str, height: int, width: int) -> None:
    path = tmp_path / f"play{suffix}"
    write(path, ramp(3, height, width))
    found = read(path)[0]
    even = suffix == ".mp4"
    assert found.shape == (height + (height % 2 if even else 0), width + (width % 2 if even else 0), 3)
    if width > 1:
        assert found[:6, :6].min() > 220
        assert found[:height, 12:width].max() < 140


def test_turned_and_sliced_frames_are_written_as_they_look(tmp_path: Path) -> None:
    path = tmp_path / "play.gif"
    frame = ramp(1)[0]
    write(path, [frame[::-1]] * 2)
    assert read(path)[0, -4:, :4].min() > 250


def test_a_name_may_look_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("envpool:Pong-v5 100%d.mp4"), ramp(2))
    assert files(tmp_path) == ["envpool:Pong-v5 100%d.mp4"]


def test_memory_does_not_grow_with_the_frames(tmp_path: Path) -> None:
    frame = ramp(1, 256, 256)[0]
    with Video(tmp_path / "play.mp4", 30) as video:
        video.add(frame)
        tracemalloc.start()
        for _ in range(100):
            video.add(frame)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 2 * frame.nbytes


def test_a_failure_leaves_what_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "play.mp4"
    path.write_text("before")
    with pytest.raises(UsageError, match="one size"):
        write(path, [*ramp(1), *ramp(1, 24, 24)])
    assert files(tmp_path) == ["play.mp4"]
    assert path.read_text() == "before"
    write(path, ramp(2))
    assert len(read(path)) == 2


def test_it_is_not_there_before_it_is_whole(tmp_path: Path) -> None:
    video = Video(tmp_path / "play.mp4", 30)
    video.add(ramp(1)[0])
    assert files(tmp_path) == [".play.mp4.part"]
    video.discard()
    assert files(tmp_path) == []


def test_a_video_without_frames_is_no_file(tmp_path: Path) -> None:
    Video(tmp_path / "play.mp4", 30).close()
    assert files(tmp_path) == []


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    with Video(tmp_path / "play.gif", 30) as video:
        video.add(ramp(1)[0])
        video.close()
    assert files(tmp_path) == ["play.gif"]


def test_an_encoder_that_dies_is_reported_in_a_sentence(tmp_path: Path) -> None:
    frame = ramp(1, 400, 400)[0]
    for step in ("add", "close"):
        video = Video(tmp_path / "play.mp4", 30)
        video.add(frame)
        assert video.encoder is not None
        video.encoder.kill()
        video.encoder.wait()
        with pytest.raises(UsageError, match=r"play\.mp4' cannot be written \(ffmpeg ended\)"):
            video.add(frame) if step == "add" else video.close()
        assert files(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_reported_in_a_sentence(tmp_path: Path, capfd) -> None:
    video = Video(tmp_path / "play.mp4", 30)
    video.temporary.unlink()
    video.temporary.symlink_to("/dev/full")
    video.add(ramp(1)[0])
    with pytest.raises(UsageError, match="No space left on device"):
        video.close()
    assert files(tmp_path) == []
    assert capfd.readouterr() == ("", "")


def test_frames_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a frame of \[24, 24, 3\] after one of \[48, 64, 3\]"):
        write(tmp_path / "play.mp4", [*ramp(1), *ramp(1, 24, 24)])
    assert files(tmp_path) == []


def test_files_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file", "nowhere"):
        with pytest.raises(UsageError, match=f"there is no folder '.*{folder}'; make it, or choose another file"):
            Video(tmp_path / folder / "play.mp4", 30)
    (tmp_path / "play.gif").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        write(tmp_path / "play.gif", ramp(1))
    assert files(tmp_path) == ["file", "play.gif"]
    with pytest.raises(UsageError, match=r"writes \.mp4 or \.gif, got 'film\.txt'"):
        check_file("film.txt")


def test_an_episode_is_recorded_whole(tmp_path: Path) -> None:
    def env(render_mode: str | None = None) -> gym.Env:
        return gym.make("Pendulum-v1", max_episode_steps=15, disable_env_checker=True, render_mode=render_mode)

    algorithm = headrace.SAC(hidden=(8,))
    graph = headrace.trace(algorithm, env)
    run = Run(tmp_path, algorithm, env, graph, make_cells(algorithm, graph, 0), seed=0)
    assert record(run, str(tmp_path / "play.mp4")) == 15
    assert facts(tmp_path / "play.mp4")["fps"] == 30.0
    assert read(tmp_path / "play.mp4").shape == (15, 500, 500, 3)
