"""A peer's own virtual environment, made on first use: none of them is a dependency of Turnout."""

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path


def environment(folder: Path, *installs: Sequence[str], remove: Sequence[str] = ()) -> Path:
    """The environment's Python, after pip has installed each group of requirements in turn and removed some again."""
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        print(f"installing {' '.join(installs[-1])} in {folder}; this takes a while", flush=True)
        venv.create(folder, with_pip=True)
        for requirements in installs:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        if remove:
            subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *remove], check=True)
        done.touch()
    return python


def version(python: Path, package: str) -> str:
    """The installed version of a package."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def packages(python: Path) -> Path:
    """Where the environment's packages are."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
