"""Video files, written frame by frame: .mp4 and .gif, by the ffmpeg that comes with imageio."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import UsageError
from headrace.extras import installing

FORMATS = (".mp4", ".gif")

GIF_FPS = 50
"""Fastest frame rate of a .gif: delays are in hundredths of a second, and browsers play 1/100 s as a tenth."""


def check_file(file: str | Path) -> None:
    """Refuse a file that cannot become a video, before anything is played."""
    if Path(file).suffix not in FORMATS:
        raise UsageError(f"--record writes {' or '.join(FORMATS)}, got '{file}'.")
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UsageError(f"--record needs imageio-ffmpeg; install it with: {installing('video')}.")
    if not Path(file).parent.is_dir():
        raise UsageError(f"--record {file}: there is no folder '{Path(file).parent}'; make it, or choose another file.")


class Video:
    """A video written to a temporary file and renamed when closed, so that it is complete or absent.

    with Video("play.mp4", fps=30) as video:
        video.add(image)     # uint8[height, width, 3], all of one size
    """

    def __init__(self, path: str | Path, fps: float):
        check_file(path)
        self.path = Path(path)
        self.fps = fps
        self.temporary = self.path.with_name(f".{self.path.name}.part")
        self.shape: tuple[int, ...] = ()
        self.encoder: subprocess.Popen[bytes] | None = None
        try:
            self.temporary.touch()
        except OSError as error:
            raise _refusal(self.path, error.strerror) from None
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115, it is closed with the video

    def __enter__(self) -> Video:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def add(self, image: np.ndarray[Any, Any]) -> None:
        """Write a frame; blocks while the encoder is behind."""
        if self.encoder is None:
            self.shape = image.shape
            self.encoder = self._start(*image.shape[:2])
        if image.shape != self.shape:
            raise UsageError(
                f"'{self.path}' cannot go on: a frame of {list(image.shape)} after one of {list(self.shape)}; "
                f"all frames of a video have one size."
            )
        assert self.encoder.stdin is not None
        try:
            self.encoder.stdin.write(np.ascontiguousarray(image, np.uint8).data)
        except OSError:
            raise self._failure() from None

    def close(self) -> None:
        """Finish the file; a video without frames is removed."""
        if self.encoder is not None:
            assert self.encoder.stdin is not None
            try:
                self.encoder.stdin.close()
            except OSError:
                raise self._failure() from None
            if self.encoder.wait() != 0:
                raise self._failure()
            try:
                self.temporary.replace(self.path)
            except OSError as error:
                self.discard()
                raise _refusal(self.path, error.strerror) from None
        self.discard()

    def discard(self) -> None:
        """Delete what was written; does nothing after `close`."""
        if self.encoder is not None:
            self.encoder.kill()
            self.encoder.communicate()
            self.encoder = None
        self.complaints.close()
        self.temporary.unlink(missing_ok=True)

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        try:
            ffmpeg = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        except RuntimeError as error:
            raise UsageError(f"--record found no ffmpeg ({error}); install one.") from None
        target = str(self.temporary.absolute())  # or a colon in the name would make it an address
        raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.fps:g}", "-i", "-"]
        # In its own session: Ctrl-C reaches only this process, which then finishes or deletes the file.
        return subprocess.Popen(
            [ffmpeg, "-y", "-v", "error", *raw, *_encoding(self.path.suffix, self.fps), target],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.complaints,
            start_new_session=True,
        )

    def _failure(self) -> UsageError:
        """The first line of ffmpeg's errors; the others follow from it."""
        assert self.encoder is not None
        with suppress(subprocess.TimeoutExpired):
            self.encoder.wait(1.0)
        self.complaints.seek(0)
        first = self.complaints.readline().decode(errors="replace").strip()
        self.discard()
        return _refusal(self.path, re.sub(r"^\[[^]]*\] ", "", first) or "ffmpeg ended")


def _refusal(path: Path, reason: str | None) -> UsageError:
    return UsageError(f"'{path}' cannot be written ({reason}); choose another file.")


def _encoding(suffix: str, fps: float) -> list[str]:
    if suffix == ".gif":
        # A palette for each frame: one for the whole video would need all frames first.
        palettes = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"
        return ["-vf", f"fps={min(fps, GIF_FPS):g},{palettes}", "-threads", "1", "-f", "gif"]
    # Players want colours at half the size, hence even sizes, and the index in front.
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"
    h264 = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p", "-threads", "1"]
    return ["-vf", even, *h264, "-movflags", "+faststart", "-f", "mp4"]
