"""The load as one of the benchmarks: the same flags, and only when it is named."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import BENCHMARKS, ON_REQUEST, main


def test_it_has_the_flags_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["load", "-h"])
    assert exit_.value.code == 0
    assert "--server" in capsys.readouterr().out


def test_it_runs_only_when_it_is_named() -> None:
    assert set(ON_REQUEST) < set(BENCHMARKS)
