from __future__ import annotations

import pytest

from retention.core.schedules import is_pattern

TAKEN = (
    *("@at 2030-01-01T00:00:00Z", "@at 2030-01-01T0:00:00+02:00", "@at 2030-01-01T00:00:00.5Z"),
    *("@every 1h30m", "@every 1s", "@hourly", "@daily", "@midnight", "@weekly", "@monthly"),
    *("@yearly", "@annually", "* * * * * *", "? ? ? ? ? ?", " *  * * * * * ", "*/5 * * * * *"),
    *("1-5 * * * * *", "1,2,3 * * * * *", "1,,3 * * * * *", "1/5 * * * * *", "*-5 * * * * *"),
    *("00 0 0 * * *", "+1 0 0 * * *", "0-59/61 * * * * *", "0 0 0 * */13 *", "0 0 0 */40 * *"),
    *("0 0 0 1 JAN MON", "0 0 0 1 jan mon", "0 0 0 * * MON-FRI", "0 0 0 29 2 *"),
    *("0 0 0 29 2 MON", "0 0 0 30 2 MON", "0 0 0 31 4,5 *", "0 0 0 */1 2 MON"),
)
REFUSED = (
    *(
        "@at nope",
        "@at 2030-01-01 00:00:00Z",
        "@at 2030-13-01T00:00:00Z",
        "@at 2030-02-30T00:00:00Z",
    ),
    *("@at 2030-01-01T24:00:00Z", "@at 2030-01-01t00:00:00z", "@at  2030-01-01T00:00:00Z"),
    *("@at 2030-01-01T00:00:00+25:00", "@at 2030-01-01T00:00:00", "@every", "@every 0.5s"),
    *("@every -5m", "@every 1d", "@MONTHLY", "@reboot", "bad", "* * * * *", "* * * * * * *"),
    *("60 * * * * *", "0 0 24 * * *", "0 0 0 0 1 *", "0 0 0 32 * *", "0 0 0 * 13 *"),
    *("0 0 0 * * 7", "5-1 * * * * *", "1-2-3 * * * * *", "-1 * * * * *", "*/0 * * * * *"),
    *("1/2/3 * * * * *", "0 0 0 L * *", "0 0 0 * * FRI-MON", "0 0 0 30 2 *", "0 0 0 31 4 *"),
    *("0 0 0 30 2 */1", ", * * * * *", "1_0 * * * * *", "TZ=UTC 0 0 0 * * *", "mon * * * * *"),
)
"""Patterns that a server accepts and refuses (`tests/live/test_publish_features.py`)."""


@pytest.mark.parametrize("pattern", TAKEN)
def test_what_a_server_takes_is_a_pattern(pattern: str) -> None:
    assert is_pattern(pattern, in_zone=False)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_a_server_refuses_is_none(pattern: str) -> None:
    assert not is_pattern(pattern, in_zone=False)


@pytest.mark.parametrize("pattern", TAKEN)
def test_instants_and_intervals_have_no_zone(pattern: str) -> None:
    assert is_pattern(pattern, in_zone=True) == (not pattern.startswith(("@at", "@every")))
