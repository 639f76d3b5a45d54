"""Where jobs run: local processes, or a Dask cluster with the same file system."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor

from resize_pos.core.errors import OutputError, UsageError

# Imported once in the fork server, instead of once in each worker.
_PRELOAD = [
    "resize_pos.run.batch.work",
    "resize_pos.transforms.execute",
    "resize_pos.verify.output_check",
]


def usable_cores() -> int:
    """Count the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextlib.contextmanager
def local_processes(count: int) -> Iterator[Executor]:
    """Open a pool of worker processes. They end when this process ends, even if it is killed."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:
        context.set_forkserver_preload(_PRELOAD)
        _start_servers()
    others = multiprocessing.active_children()
    executor = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker)
    try:
        yield executor
    except BaseException:  # interrupted: do not wait for running jobs
        for child in multiprocessing.active_children():
            if child not in others:
                child.kill()
                child.join()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _start_servers() -> None:
    """Start multiprocessing's helper processes so that a closed terminal does not kill them.

    Both ignore SIGINT, but not SIGHUP and SIGQUIT, which a terminal sends to them, too. A helper
    that dies first leaves the others to complain. Blocked signals stay blocked in a new process.
    """
    import signal
    from multiprocessing import forkserver, resource_tracker

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGQUIT})
    try:
        resource_tracker.ensure_running()
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """Open the executor of a running Dask scheduler; a lost worker's job is retried by Dask."""
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "--dask needs Dask, which is not installed.",
            hint="pip install 'resize-pos[dask]'",
        ) from None
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OutputError(
            f"--dask {address}: no scheduler answers there: {reason}.",
            hint="start one with `dask scheduler`, and pass the address that it prints.",
        ) from error
    with client:
        yield client.get_executor(pure=False)


def _start_worker() -> None:
    """Set up a worker: it ignores interrupts, and it ends when its parent ends."""
    import multiprocessing
    import signal

    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):  # the terminal also sends these to workers
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        _die_with(parent.sentinel)


def _die_with(sentinel: int) -> None:
    def watch() -> None:
        from multiprocessing.connection import wait

        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="resize-pos-parent").start()
