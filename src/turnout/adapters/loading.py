"""From an adapter's folder to its immutable state: the one way in."""

from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path

from turnout.adapters.config import PeftConfig, read_config
from turnout.adapters.digest import AdapterHasher
from turnout.adapters.files import adapter_file, adapter_folder
from turnout.adapters.header import TensorEntry, read_header
from turnout.adapters.matching import LoraPair, match
from turnout.adapters.targeting import idle_words, targeted_modules
from turnout.adapters.tensors import cast, is_zero, read_bytes
from turnout.adapters.wording import first_of, shown
from turnout.core.adapter import CONFIG_FILE, TARGETS, WEIGHTS_FILE, AdapterState, Dtype, LoraModule, Weights, pack
from turnout.core.errors import AdapterFileError
from turnout.core.identity import Digest
from turnout.models.spec import DecoderSpec, LinearSpec, linears

_UNUSED_FILES = ("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "chat_template.jinja")


def load(
    folder: Path,
    spec: DecoderSpec,
    model_revision: Digest,
    dtype: Dtype,
    max_rank: int,
    *,
    roots: Sequence[Path] | None = None,
    base_names: Sequence[str] = (),
) -> AdapterState:
    """Read, check and cast the PEFT adapter in `folder` for the base that `spec` describes.

    All ranks must be at most `max_rank`. With `roots`, the folder and its files must really lie in one of them.
    With `base_names`, what the base is called here, another name in the configuration makes a warning only:
    shapes are evidence, names are not. Each byte of the weights is read once, hashed and kept.

    Raises AdapterPathNotFound when there is no such folder and otherwise, before anything large is read where
    possible, the AdapterError that says what cannot be served exactly.
    """
    folder = adapter_folder(folder, roots)
    # Messages use the names in the folder: behind a link, as in the Hugging Face cache, the real ones are hashes.
    config = read_config(adapter_file(folder, CONFIG_FILE, roots), repr(str(folder / CONFIG_FILE)))
    path, where = adapter_file(folder, WEIGHTS_FILE, roots), repr(str(folder / WEIGHTS_FILE))
    layers = linears(spec)
    hasher = AdapterHasher()
    try:
        with path.open("rb") as file:
            pairs = match(read_header(file, where), config, layers, max_rank, where)
            modules = [_module(file, pair, dtype, hasher, where) for pair in pairs]
    except OSError as error:
        raise AdapterFileError(f"{where} cannot be read: {error.strerror}") from error
    modules.sort(key=lambda module: (module.layer, TARGETS.index(module.target)))
    packed, buffer = pack(modules, dtype)
    return AdapterState(
        digest=hasher.digest(),
        model_revision=model_revision,
        dtype=dtype,
        modules=packed,
        buffer=buffer,
        untouched=len(layers) - len(modules),
        warnings=(
            *config.warnings,
            *idle_words(config, layers),
            *_missing_weights(config, layers, pairs, where),
            *_other_base(config, base_names),
            *_no_effect(modules, where),
            *_unused_files(folder),
        ),
    )


def _module(file: BufferedReader, pair: LoraPair, dtype: Dtype, hasher: AdapterHasher, where: str) -> LoraModule:
    def weights(entry: TensorEntry) -> Weights:
        raw = read_bytes(file, entry, where)
        hasher.tensor(entry, raw)
        return cast(raw, entry, dtype, where)

    hasher.module(pair.module, pair.scale)
    a, b = weights(pair.a), weights(pair.b)
    return LoraModule(pair.linear.layer, pair.linear.target, pair.rank, pair.scale, a, b)


def _missing_weights(
    config: PeftConfig, layers: Mapping[str, LinearSpec], pairs: Sequence[LoraPair], where: str
) -> tuple[str, ...]:
    missing = sorted(targeted_modules(config, layers) - {pair.module for pair in pairs})
    if not missing:
        return ()
    return (
        f"{where}: {len(missing)} targeted modules have no weights and stay as they are in the base: "
        f"{first_of(missing)}",
    )


def _other_base(config: PeftConfig, base_names: Sequence[str]) -> tuple[str, ...]:
    """By the last part of a name or path alone, for the same model is `org/model` here and `/models/model` there."""
    known = {_last_part(name) for name in base_names}
    if config.base_name is None or not known or _last_part(config.base_name) in known:
        return ()
    return (f"{config.where}: trained on {shown(config.base_name)}, served on {base_names[0]!r}; the shapes do fit",)


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].casefold()


def _unused_files(folder: Path) -> tuple[str, ...]:
    found = ", ".join(name for name in _UNUSED_FILES if (folder / name).exists())
    return (f"{shown(str(folder))}: not used are {found}; the base's tokenizer and chat template are",) if found else ()


def _no_effect(modules: Sequence[LoraModule], where: str) -> tuple[str, ...]:
    if any(module.scale and not is_zero(module.a) and not is_zero(module.b) for module in modules):
        return ()
    return (f"{where}: the adapter changes nothing: in every module A, B or the scale is zero",)
