"""window: what is shown is on the screen, until its person closes it. The screen is an X server's memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import UsageError
from headrace.services.window import Window, missing

SIZE = (300, 400)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    """An X server of our own: its display, and the file that is its screen."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed, so there is no screen to look at")
    pytest.importorskip("tkinter", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("screen")
    number, ours = os.pipe()
    screen = ["-screen", "0", f"{SIZE[1]}x{SIZE[0]}x24", "-nolisten", "tcp", "-fbdir", str(folder)]
    process = subprocess.Popen(["Xvfb", "-displayfd", str(ours), *screen], pass_fds=[ours], stderr=subprocess.DEVNULL)
    os.close(ours)
    with os.fdopen(number) as line:
        display = line.readline().strip()
    if not display:
        process.wait()
        pytest.skip("Xvfb does not start here")
    yield f":{display}", folder / "Xvfb_screen0"
    process.terminate()
    process.wait()


@pytest.fixture
def screen(server, monkeypatch: pytest.MonkeyPatch) -> Path:
    display, file = server
    monkeypatch.setenv("DISPLAY", display)
    return file


def pixels(screen: Path) -> np.ndarray:
    """What is on the screen, uint8[height, width, 3]; the file is in the format of `xwd`."""
    data = screen.read_bytes()
    header = np.frombuffer(data, ">u4", 25).astype(int)
    size, width, height, line, colours = header[[0, 4, 5, 12, 19]]
    rows = np.frombuffer(data, np.uint8, height * line, size + 12 * colours).reshape(height, line)
    return rows[:, : 4 * width].reshape(height, width, 4)[..., 2::-1]


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def wait(window: Window, image: np.ndarray, until) -> None:
    """Show an image until something is so; the X server takes its own time."""
    deadline = time.monotonic() + 600
    while not until():
        assert time.monotonic() < deadline
        window.show(image)
        time.sleep(0.01)


def on(screen: Path, image: np.ndarray):
    height, width = image.shape[:2]
    return lambda: (pixels(screen)[:height, :width] == image).all()


def ask_to_close(window: Window) -> None:
    """Send what a window manager sends when its cross is clicked, over a connection of its own."""
    x = ctypes.CDLL(ctypes.util.find_library("X11"))
    x.XOpenDisplay.restype = ctypes.c_void_p
    x.XInternAtom.restype = ctypes.c_ulong
    display = ctypes.c_void_p(x.XOpenDisplay(os.environ["DISPLAY"].encode()))
    protocols, delete = (x.XInternAtom(display, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
    target = int(window.root.wm_frame(), 16)
    client_message = 33
    event = (ctypes.c_long * 24)(client_message, 0, 1, 0, target, protocols, 32, delete)
    x.XSendEvent(display, ctypes.c_ulong(target), 0, ctypes.c_long(0), ctypes.byref(event))
    x.XCloseDisplay(display)


def test_frames_of_any_size_are_on_the_screen_to_the_bit(screen: Path) -> None:
    window = Window("headrace")
    for image in (noise(120, 160), noise(200, 90), np.ascontiguousarray(noise(31, 33)[::-1])):
        assert window.show(image)
        wait(window, image, on(screen, image))
        assert window.root.winfo_height() == image.shape[0]
        assert window.root.winfo_width() == image.shape[1]
    window.close()


def test_its_person_closes_it_and_it_says_so(screen: Path) -> None:
    window = Window("headrace")
    image = noise(50, 60)
    wait(window, image, on(screen, image))
    ask_to_close(window)
    wait(window, image, lambda: not window.open)
    assert not window.show(image)
    window.close()


def test_escape_closes_it(screen: Path) -> None:
    window = Window("headrace")
    image = noise(50, 60)
    wait(window, image, on(screen, image))
    window.root.focus_force()
    window.root.event_generate("<Escape>")
    wait(window, image, lambda: not window.open)
    assert not window.show(image)


def test_closed_it_is_gone_and_another_can_be_opened(screen: Path) -> None:
    for _ in range(2):
        window = Window("headrace")
        assert window.show(noise(20, 20))
        window.close()
        window.close()
        assert not window.show(noise(20, 20))


def test_with_a_screen_nothing_is_missing(screen: Path) -> None:
    assert missing() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only X has displays")
def test_without_a_screen_the_reason_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tkinter", exc_type=ImportError)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert missing() == "a window needs a screen; there is none here (DISPLAY is not set)."
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert "Xwayland" in (missing() or "")
    with pytest.raises(UsageError, match="a window needs an X server"):
        Window("headrace")
    monkeypatch.setenv("DISPLAY", ":nowhere")
    with pytest.raises(UsageError, match=r"a window cannot be opened here \(.+\)\."):
        Window("headrace")


def test_without_tkinter_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tkinter", None)  # as Python marks what cannot be imported
    assert "needs Python's tkinter" in (missing() or "")
    assert "install python3-tk" in (missing() or "")
