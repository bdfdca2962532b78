"""`turnout serve`."""

import logging
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.logging import RichHandler

from turnout.core.durations import parse_duration
from turnout.core.errors import SettingsError, TurnoutError
from turnout.core.settings import DtypeChoice, Settings, WeightsChoice, parse_bytes

console = Console(stderr=True)


def serve(
    base: Annotated[
        str,
        typer.Option(
            help="Model folder, .gguf file, Hub id (org/model[@revision]) or 'smollm2-135m'.", show_default=False
        ),
    ],
    adapters: Annotated[
        Path | None, typer.Option(help="Folder with one adapter folder in each of its folders.")
    ] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATH", help="One adapter more; may be repeated.")
    ] = None,
    adapter_root: Annotated[
        list[Path] | None, typer.Option(help="Folder from which adapters may be loaded at run time; may be repeated.")
    ] = None,
    served_model_name: Annotated[str | None, typer.Option(help="What clients call the base.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    device: Annotated[str, typer.Option(help="torch device of the base.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="auto, float32 or bfloat16. auto: bfloat16 where the CPU computes it natively.")
    ] = "auto",
    weights: Annotated[
        str, typer.Option(help="auto, or int8: the base's linear layers in int8, faster and a little less exact.")
    ] = "auto",
    threads: Annotated[int | None, typer.Option(help="Compute threads; one per core if not given.")] = None,
    max_batch_tokens: Annotated[int, typer.Option(help="Tokens that one step computes at most.")] = 512,
    max_sequences: Annotated[int, typer.Option(help="Sequences in the batch at most.")] = 64,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait; more get 429.")] = 1024,
    max_lora_rank: Annotated[int, typer.Option(help="Largest rank of an adapter.")] = 256,
    kv_memory: Annotated[str, typer.Option(help="Memory for KV state, as 512MiB or 2GiB.")] = "1GiB",
    adapter_memory: Annotated[str, typer.Option(help="Memory for hot adapter weights.")] = "1GiB",
    registry: Annotated[
        str | None,
        typer.Option(
            envvar="TURNOUT_REGISTRY", help="File or postgresql:// URL; a file in the data folder if not given."
        ),
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(
            envvar="TURNOUT_ARTIFACTS",
            help="Folder, or URL such as s3://bucket/prefix, for adapters' bytes; in the data folder if not given.",
        ),
    ] = None,
    keep_prompts: Annotated[bool, typer.Option(help="Keep prompts in the lineage records.")] = False,
    lineage_for: Annotated[str, typer.Option(help="How long lineage records are kept: 30d, 12h, or forever.")] = "30d",
    api_key: Annotated[
        str | None,
        typer.Option(envvar="TURNOUT_API_KEY", help="Key that clients must send; needed beyond loopback."),
    ] = None,
    admin_key: Annotated[
        str | None,
        typer.Option(envvar="TURNOUT_ADMIN_KEY", help="Operator's key, besides the one in the data folder."),
    ] = None,
) -> None:
    """Serve a base model and its adapters over the OpenAI API."""
    logging.basicConfig(
        level="INFO", format="%(message)s", handlers=[RichHandler(console=console, show_path=False, markup=False)]
    )
    # It speaks of its own plug-ins.
    logging.getLogger("alembic").setLevel("WARNING")
    try:
        settings = Settings(
            base=base,
            served_model_name=served_model_name,
            adapters=adapters,
            named_adapters=tuple(_named(entry) for entry in adapter or ()),
            adapter_roots=tuple(adapter_root or ()),
            host=host,
            port=port,
            device=device,
            dtype=cast(DtypeChoice, dtype),  # Settings checks them
            weights=cast(WeightsChoice, weights),
            threads=threads,
            max_batch_tokens=max_batch_tokens,
            max_sequences=max_sequences,
            max_waiting=max_waiting,
            max_lora_rank=max_lora_rank,
            kv_memory=parse_bytes(kv_memory),
            adapter_memory=parse_bytes(adapter_memory),
            registry=registry,
            artifacts=artifacts,
            keep_prompts=keep_prompts,
            lineage_for=None if lineage_for == "forever" else parse_duration(lineage_for),
            api_key=api_key,
            admin_key=admin_key,
        )
        # Imported here: it brings torch, and `turnout --help` shall not wait for that.
        from turnout.build import build_server  # noqa: PLC0415

        with build_server(settings) as server:
            server.run()
    except TurnoutError as error:
        console.print(f"[bold red]error:[/] {error.message} [dim]({error.code})[/]", highlight=False, soft_wrap=True)
        raise typer.Exit(2 if isinstance(error, SettingsError) else 1) from error


def _named(entry: str) -> tuple[str, Path]:
    name, equals, path = entry.partition("=")
    if not (name and equals and path):
        raise SettingsError(f"--adapter takes NAME=PATH, not '{entry}'")
    return name, Path(path)
