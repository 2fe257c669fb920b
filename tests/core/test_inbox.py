"""Commands and audio that wait, in order, in bounded room."""

from __future__ import annotations

import numpy as np

from realtime_server.core.inbox import Inbox


def audio(*samples: float) -> np.ndarray:
    return np.array([samples], np.float32)


def test_they_come_out_in_order_with_audio_joined() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.add_audio(audio(1, 2))
    inbox.add_audio(audio(3))
    inbox.add_command("a")
    inbox.add_command("b")
    inbox.add_audio(audio(4))
    assert (inbox.commands, inbox.samples, len(inbox)) == (2, 4, 4)
    first = inbox.take()
    assert isinstance(first, np.ndarray)
    assert first.tolist() == [[1, 2, 3]]
    assert [inbox.take(), inbox.take()] == ["a", "b"]
    assert (inbox.commands, inbox.samples, len(inbox)) == (0, 1, 1)


def test_many_small_frames_are_one_entry() -> None:
    inbox: Inbox[str] = Inbox()
    for _ in range(10_000):
        inbox.add_audio(audio(0.5))
    assert (len(inbox), inbox.samples) == (1, 10_000)


def test_channels_stay_apart() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.add_audio(np.array([[1], [2]], np.float32))
    inbox.add_audio(np.array([[3], [4]], np.float32))
    taken = inbox.take()
    assert isinstance(taken, np.ndarray)
    assert taken.tolist() == [[1, 3], [2, 4]]


def test_clear_forgets_everything() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.add_command("a")
    inbox.add_audio(audio(1))
    inbox.clear()
    assert (inbox.commands, inbox.samples, len(inbox)) == (0, 0, 0)
