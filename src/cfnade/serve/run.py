"""Starts the service: binds the socket, checks the model, runs one worker or several."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

from cfnade.errors import ConfigError
from cfnade.serve.model_source import load_checked
from cfnade.serve.service_settings import ServeSettings


def run(settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        settings: Of the service.
        say: Prints a line for people.

    Raises:
        ArtifactError: If the model cannot be used.
        ConfigError: If the address cannot be listened on.
    """
    with ignored_hangups(), bind(settings) as listening:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host

        def report_ready() -> None:
            say(f"serving {settings.model} at http://{shown}:{port}/ (Ctrl-C stops)")

        if settings.api_key is None and host not in ("127.0.0.1", "::1"):
            say(
                f"anyone who can reach {shown}:{port} can use it; require a key with --api-key-file"
            )
        if settings.n_workers == 1:
            from cfnade.serve.worker import run_worker

            run_worker(settings, listening, on_ready=report_ready)
            return
        load_checked(settings.model)  # report a bad model before any worker starts
        from cfnade.serve.supervisor import Supervisor

        Supervisor(settings, listening, on_ready=report_ready).run()


@contextlib.contextmanager
def ignored_hangups() -> Iterator[None]:
    """Ignore SIGHUP, which would end the process, until the service handles it.

    No new model is missed: the service checks the folder when it starts.
    """
    if not hasattr(signal, "SIGHUP"):  # not on Windows
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def bind(settings: ServeSettings) -> socket.socket:
    """A socket on the address of the settings.

    Raises:
        ConfigError: If it is taken, or not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror or error}); "
            "choose another --port or --host"
        ) from error
    listening.set_inheritable(True)
    return listening
