"""Writing files so that nobody ever finds half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file: whoever reads it finds the old content or the new one, whatever happens on the way."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content) if isinstance(content, bytes) else part.write_text(content)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
