"""Ctrl-C that lets the step finish: the run is saved, and can be resumed."""

import signal
import threading


class Stop:
    """Inside the block, the first Ctrl-C or SIGTERM only sets `asked`; a second one interrupts at once."""

    def __init__(self):
        self.asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Stop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _ask(self, number: int, frame) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
