"""A window that shows frames, with nothing but the standard library."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from headrace.errors import UsageError


def missing() -> str | None:
    """Why no window can be opened here, in a sentence; None if one can."""
    try:
        import tkinter  # noqa: F401
    except ImportError as error:
        return f"a window needs Python's tkinter ({error}); on Debian and Ubuntu, install python3-tk."
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        if os.environ.get("WAYLAND_DISPLAY"):
            return "a window needs an X server, which Wayland has as Xwayland; DISPLAY is not set."
        return "a window needs a screen; there is none here (DISPLAY is not set)."
    return None


class Window:
    """Shows one frame at a time; the user closes it with Escape or the window's button.

    It belongs to the thread that made it, and handles input only during `show`.
    """

    def __init__(self, title: str):
        reason = missing()
        if reason is not None:
            raise UsageError(reason)
        import tkinter

        try:
            self.root = tkinter.Tk(className="headrace")
        except tkinter.TclError as error:
            raise UsageError(f"a window cannot be opened here ({error}).") from None
        self.open = True
        self.root.title(title)
        self.root.resizable(False, False)
        self.root.protocol("WM_DELETE_WINDOW", self.close)
        self.root.bind("<Escape>", lambda event: self.close())
        self.photo = tkinter.PhotoImage(master=self.root)
        tkinter.Label(self.root, image=self.photo, borderwidth=0).pack()

    def show(self, image: np.ndarray[Any, Any]) -> bool:
        """Show a frame, uint8[height, width, 3], of any size; False once the window was closed."""
        if self.open:
            height, width = image.shape[:2]
            self.photo.configure(data=b"P6 %d %d 255\n" % (width, height) + image.tobytes(), format="PPM")
            self.root.update()
        return self.open

    def close(self) -> None:
        if self.open:
            self.open = False
            self.root.destroy()
