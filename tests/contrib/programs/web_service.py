"""A FastAPI service under a real uvicorn, set up and ended in the ways that services are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from nemo_lens.api import SpanRegistry, get_telemetry, managed_span, setup_telemetry
from nemo_lens.contrib.fastapi import instrument_fastapi

SpanRegistry.register("service", ["web", "work"])


def say(**facts: Any) -> None:
    os.write(1, f"{json.dumps(facts)}\n".encode())


def make_app(lifespan: Any = None) -> FastAPI:
    made = FastAPI()
    if lifespan is not None:
        made.router.lifespan_context = lifespan  # FastAPI takes it as an argument since 0.93 only

    @made.get("/batch/{number}")
    async def work(number: int) -> dict[str, int]:
        with managed_span("work", "work", number=number):
            return {"pid": os.getpid()}

    @made.get("/health")
    async def health() -> str:
        return "ok"

    return made


@contextlib.asynccontextmanager
async def telemetry(_app: FastAPI) -> AsyncIterator[None]:
    with setup_telemetry():
        yield


# Instrumented at import time, long before telemetry is set up.
app = make_app(telemetry)
instrument_fastapi(app, group="web")


def serve(served: Any, listening: socket.socket) -> None:
    config = uvicorn.Config(served, http="h11", ws="none", log_level="critical")
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def listen() -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0))
    say(port=listening.getsockname()[1], pid=os.getpid())
    return listening


def before() -> None:
    """Set up before serving; SIGTERM ends it, which uvicorn raises again when it is done."""
    handle = setup_telemetry()
    handle.install_sigterm_handler()
    served = make_app()
    instrument_fastapi(served)
    serve(served, listen())


def lifespan() -> None:
    """Set up when the application starts and shut down when it ends."""
    serve(app, listen())


def workers() -> None:
    """Let uvicorn start two processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    say(port=port, pid=os.getpid())
    uvicorn.run("web_service:app", port=port, workers=2, http="h11", ws="none", log_level="critical")


def prefork() -> None:
    """Set up and instrument, then fork two processes that serve."""
    setup_telemetry()
    served = make_app()
    instrument_fastapi(served, group="web")
    children = []
    for listening in (listen(), listen()):
        child = os.fork()
        if not child:
            get_telemetry().install_sigterm_handler()
            serve(served, listening)
            os._exit(1)  # uvicorn raises SIGTERM again
        children.append(child)
        listening.close()
    os.read(0, 1)
    for child in children:
        os.kill(child, signal.SIGTERM)
    say(codes=[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])


def everywhere() -> None:
    """Leave instrumenting to the environment."""
    with setup_telemetry() as handle:
        handle.install_sigterm_handler()
        served = make_app()
        serve(served, listen())


def everywhere_lifespan() -> None:
    """Leave instrumenting to the environment, in an application that has begun to serve by then."""
    serve(make_app(telemetry), listen())


def unpickled(path: str) -> None:
    """Serve an application that another process pickled."""
    import cloudpickle

    handle = setup_telemetry()
    handle.install_sigterm_handler()
    serve(cloudpickle.loads(Path(path).read_bytes()), listen())


def pickled(path: str) -> None:
    """Pickle an instrumented application as Ray Serve does."""
    import copyreg

    import cloudpickle
    from starlette.datastructures import State

    copyreg.pickle(State, lambda state: (State, (state._state,)))  # as Ray does: Starlette's own does not come back
    made = FastAPI()

    @made.get("/batch/{number}", response_model=None)
    async def work(number) -> Any:  # type: ignore[no-untyped-def]
        return {"number": number}

    instrument_fastapi(made, group="web")
    Path(path).write_bytes(cloudpickle.dumps(made))
    say(pickled=True)


if __name__ == "__main__":
    scenarios: dict[str, Any] = {
        scenario.__name__: scenario
        for scenario in (before, lifespan, workers, prefork, everywhere, everywhere_lifespan, unpickled, pickled)
    }
    scenarios[sys.argv[1]](*sys.argv[2:])
