"""Writing files atomically."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: a reader finds the old content or the new one, even after a crash."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content) if isinstance(content, bytes) else part.write_text(content)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
