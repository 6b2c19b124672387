"""Recorded dispatches: a Program crosses to the GPU side in one call, once or many times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py_attn.arguments import check_positive
from py_attn.gpu.bridge import RawTiming
from py_attn.gpu.queue import Queue
from py_attn.gpu.recorder import Dispatch, Recorder


@contextmanager
def record(queue: Queue) -> Iterator[Program]:
    """Record what is called inside into a :class:`Program` instead of running it."""
    with queue.record() as recorder:
        program = Program(queue, recorder)
        yield program
    program.upload()


class Program:
    """Dispatches recorded by ``with device.record() as program``; ``submit`` runs them again.

    The tensors that were used while recording stay alive as long as it does. Recorded dispatches do not run
    until the program is submitted. What the bridge holds of it goes with the last reference, or by `destroy`.
    """

    def __init__(self, queue: Queue, recorder: Recorder) -> None:
        self._queue = queue
        self._recorder = recorder
        self._handle: int | None = None

    def __len__(self) -> int:
        return len(self._recorder.dispatches)

    @property
    def dispatches(self) -> Sequence[Dispatch]:
        return tuple(self._recorder.dispatches)

    @property
    def params(self) -> bytearray:
        """The params of all dispatches, ``PARAMS_ALIGNMENT`` apart; may be changed between submissions."""
        return self._recorder.params

    def submit(self, times: int = 1) -> None:
        """Run the recorded dispatches, after everything that was called before.

        Parameters
        ----------
        times : int
            How many times over they run, one run after the other. Together the runs are one submission, so
            that no message to the browser stands between them.

        Raises
        ------
        ValueError, TypeError
            When ``times`` is no integer of at least 1, or a tensor that the program uses was destroyed.
        DeviceLostError
            When the device is gone.
        """
        count = check_positive("times", times)
        if handle := self._ready():
            self._queue.submit(handle, self._recorder, count)

    async def time(self, times: int = 1) -> RawTiming:
        """Run the recorded dispatches together and wait for them.

        Parameters
        ----------
        times : int
            How many times over they run, as of :meth:`submit`.

        Returns
        -------
        RawTiming
            Of all runs together: ``gpu_us`` from the first dispatch's beginning to the last one's end, gaps
            included (None without timestamp queries), and ``wall_us`` from the submission until JavaScript
            saw them done.

        Raises
        ------
        ValueError, TypeError
            When ``times`` is no integer of at least 1, nothing was recorded, or a tensor it uses was
            destroyed.
        PyAttnError
            When one of them failed.
        """
        timing = await self.time_after(0, check_positive("times", times))
        await self._queue.raise_errors()
        return timing

    async def time_after(self, warmup_runs: int, times: int = 1) -> RawTiming:
        """Time it right after ``warmup_runs`` runs of it; errors stay until :meth:`Queue.raise_errors`.

        The timing is of ``times`` runs together.

        Raises
        ------
        ValueError
            When nothing was recorded, or a tensor it uses was destroyed.
        """
        handle = self._ready()
        if not handle:
            raise ValueError("program: nothing was recorded that could be timed")
        bridge = self._queue.bridge
        for _ in range(warmup_runs):
            bridge.submit_program(handle, self._recorder.params)
        (timing,) = await bridge.timings(bridge.submit_timed(handle, self._recorder.params, True, times))
        return timing

    def _ready(self) -> int | None:
        """The bridge's handle, after sending everything that was called before; None when empty."""
        self._queue.check_alive()
        if any(not storage.alive for storage in self._recorder.storages.values()):
            raise ValueError("program: a tensor that it uses was destroyed")
        self._queue.flush()
        self.upload()
        return self._handle

    def upload(self) -> None:
        """Hand the word stream to the bridge, once; from then on that keeps the pipelines alive."""
        if self._handle is None and self._recorder.dispatches and not self._queue.lost:
            self._handle = self._queue.bridge.create_program(self._recorder.words)

    def destroy(self) -> None:
        """Forget the recorded dispatches and release their tensors."""
        if self._handle is not None and not self._queue.lost:
            self._queue.bridge.destroy_program(self._handle)
        self._handle = None
        self._recorder = Recorder()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.destroy()
