"""`ostinato serve`: models behind HTTP and gRPC, many streams stepped together."""

from __future__ import annotations

import logging
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli import common
from ostinato.cli.feeds import read_array
from ostinato.errors import OptionError
from ostinato.files import require_model

if TYPE_CHECKING:
    from ostinato.serve.cluster import Cluster
    from ostinato.serve.lanes import Served
    from ostinato.serve.server import Addresses
    from ostinato.serve.service import Interface

_PORTS: dict[str, Any] = {"min": -1, "max": 2**16 - 1}


_Model = Annotated[
    list[str],
    typer.Argument(metavar="[NAME=]MODEL", help="ONNX files (default name: the file's)."),
]
_State = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="[NAME:]INPUT=OUTPUT",
        help="A state that a sequence keeps; NAME says of which model.",
    ),
]
_Shared = Annotated[
    list[str] | None,
    typer.Option(
        "--shared",
        metavar="[NAME:]INPUT=VALUE",
        help="An input that is the same in all messages: a number, or FILE.npy.",
    ),
]
_Batch = Annotated[
    list[str] | None,
    typer.Option(
        "--batch",
        metavar="[NAME:]DIM",
        help="The dimension that streams are put along (default: the only one there is).",
    ),
]
_Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")]
_HttpPort = Annotated[
    int,
    typer.Option("--http-port", metavar="PORT", help="0: any that is free; -1: no HTTP.", **_PORTS),
]
_GrpcPort = Annotated[
    int,
    typer.Option("--grpc-port", metavar="PORT", help="0: any that is free; -1: no gRPC.", **_PORTS),
]
_Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="Processes that compute (default: one per core); 0: the one that takes requests.",
        min=0,
    ),
]
_Streams = Annotated[
    int,
    typer.Option(
        "--streams", metavar="N", help="Most open sequences of a model per worker.", min=1
    ),
]
_Queue = Annotated[
    int, typer.Option("--queue", metavar="N", help="Most messages that wait for a worker.", min=1)
]
_Idle = Annotated[
    float,
    typer.Option(
        "--idle", metavar="SECONDS", help="Seconds until a silent sequence ends.", min=0.1
    ),
]
_Drain = Annotated[
    float,
    typer.Option(
        "--drain", metavar="SECONDS", help="Seconds for sequences to end on SIGTERM.", min=0
    ),
]
_MaxMessage = Annotated[
    float,
    typer.Option("--max-message", metavar="MIB", help="MiB of the longest message.", min=0.001),
]
_FrameMs = Annotated[
    float | None,
    typer.Option(
        "--frame-ms", metavar="MS", help="Signal in a frame, for the real-time factor.", min=0.001
    ),
]


def serve(
    model: _Model,
    state: _State = None,
    shared: _Shared = None,
    batch: _Batch = None,
    host: _Host = "127.0.0.1",
    http_port: _HttpPort = 8000,
    grpc_port: _GrpcPort = 8001,
    workers: _Workers = None,
    streams: _Streams = 1024,
    queue: _Queue = 4096,
    idle: _Idle = 60.0,
    drain: _Drain = 30.0,
    max_message: _MaxMessage = 16.0,
    frame_ms: _FrameMs = None,
    json: common.Json = False,
    debug: common.Debug = False,
) -> None:
    """Serve models by the Open Inference Protocol (KServe v2), over HTTP and gRPC."""
    with common.error_line(debug):
        if http_port < 0 and grpc_port < 0:
            raise OptionError("--http-port -1 --grpc-port -1: nothing is left to serve")
        served = _served(model, state or [], batch or [], shared or [], streams)
        _require_extra()
        import asyncio

        from ostinato.native.threads import processors
        from ostinato.serve import server
        from ostinato.serve.cluster import Limits

        settings = server.Settings(
            host=host,
            http=None if http_port < 0 else http_port,
            grpc=None if grpc_port < 0 else grpc_port,
            workers=processors() if workers is None else workers,
            drain=drain,
            most=int(max_message * 2**20),
            frame=None if frame_ms is None else frame_ms / 1000,
            limits=Limits(queue, idle),
        )
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        with common.status(f"Compiling {', '.join(one.name for one in served)}"):
            interfaces = server.look(served)

        def started(addresses: Addresses, cluster: Cluster) -> None:
            _print(interfaces, addresses, cluster, json)

        asyncio.run(server.serve(served, interfaces, settings, started))


def _require_extra() -> None:
    from importlib.util import find_spec

    missing = [n for n in ("grpc", "prometheus_client", "starlette", "uvicorn") if not find_spec(n)]
    if missing:
        raise OptionError(
            f"`ostinato serve` needs {', '.join(missing)}: pip install 'ostinato[serve]'"
        )


def _served(
    models: list[str], states: list[str], batches: list[str], shared: list[str], streams: int
) -> list[Served]:
    """The models with their states, after a check that the files are there."""
    paths: dict[str, Path] = {}
    for text in models:
        name, equals, path = text.partition("=")
        file = Path(path if equals else text)
        require_model(file)
        name = name if equals else file.stem
        if name in paths:
            raise OptionError(f"two models are called {name!r}: write NAME=MODEL")
        paths[name] = file
    from ostinato.serve.lanes import Served

    pairs = {
        name: common.parse_pairs("--state", texts, "INPUT=OUTPUT")
        for name, texts in _by(paths, states)
    }
    dims = {name: texts[-1] for name, texts in _by(paths, batches) if texts}
    values = {name: _values(texts) for name, texts in _by(paths, shared)}
    return [
        Served(name, str(path), pairs[name], dims.get(name), streams, values[name])
        for name, path in paths.items()
    ]


def _values(texts: list[str]) -> dict[str, Any]:
    """Inputs that are numbers, or arrays in files."""
    found: dict[str, Any] = {}
    for name, text in common.parse_pairs("--shared", texts, "INPUT=VALUE").items():
        try:
            found[name] = read_array(name, text) if text.endswith(".npy") else loads(text)
        except ValueError:
            raise OptionError(f"--shared {name}={text}: expected a number or FILE.npy") from None
    return found


def _by(names: dict[str, Path], texts: list[str]) -> list[tuple[str, list[str]]]:
    """The values of an option for each model: those that name it, and those that name none."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for text in texts:
        name, colon, rest = text.partition(":")
        if colon and name in found:
            found[name].append(rest)
        else:
            for values in found.values():
                values.append(text)
    return list(found.items())


def _print(
    interfaces: dict[str, Interface], addresses: Addresses, cluster: Cluster, json: bool
) -> None:
    """Say what is served, and where."""
    where: dict[str, Any] = {"http": addresses.http, "grpc": addresses.grpc}
    if json:
        models = {name: _how(cluster, name, interfaces[name]) for name in interfaces}
        common.print_json({**where, "workers": cluster.processes, "models": models})
        return
    rows = common.table("Models", "name", "states", "sequences", "inputs", "outputs", left=5)
    for name, found in interfaces.items():
        rows.add_row(
            name,
            ", ".join(f"{i} <- {o}" for i, o in cluster.models[name].states.items()) or "none",
            _how(cluster, name, found),
            *(
                ", ".join(f"{t.name} {t.datatype}{common.format_shape(t.shape)}" for t in tensors)
                for tensors in (found.inputs, found.outputs)
            ),
        )
    console = common.console()
    common.show(rows)
    for kind, address in where.items():
        if address is not None:
            console.print(f"{kind.upper()}: {address}")
    count = len(cluster.processes)
    workers = "1 worker is ready" if count == 1 else f"{count} workers are ready"
    ready = workers if count else "ready without workers"
    console.print(f"{ready}; Ctrl-C stops")


def _how(cluster: Cluster, name: str, found: Interface) -> str:
    if not cluster.models[name].states:
        return "no states: each request by itself"
    return "stepped together" if found.apart is None else f"one by one: {found.apart}"
