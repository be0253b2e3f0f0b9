"""Optional packages: imported when needed; where one is missing, the error says how to install it."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

from headrace.errors import UsageError

CHECKOUT = Path(__file__).parents[2]


def installing(extra: str) -> str:
    """The command that installs an extra for the Python that runs this: from the checkout, if it runs from one."""
    found = shutil.which("pip")
    own = found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()
    pip = "pip" if own else f"{sys.executable} -m pip"
    if not (CHECKOUT / "pyproject.toml").exists():
        return f"{pip} install 'headrace[{extra}]'"
    here = "." if Path.cwd() == CHECKOUT else CHECKOUT
    return f"{pip} install -e '{here}[{extra}]'"


def needed(module: str, extra: str, who: str, refusal: type[UsageError] = UsageError) -> Any:
    """A module of an extra; `who` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise refusal(f"{who} needs the package {package} ({error}); install it with: {installing(extra)}.") from None
