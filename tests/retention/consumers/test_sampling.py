from __future__ import annotations

import numpy as np
import pytest

from retention.consumers.sampling import is_sampled, sample_percent


@pytest.mark.parametrize(
    ("text", "share"), [("", 0), ("0", 0), ("-0%", 0), ("30", 30), ("+30%", 30), ("250%", 250)]
)
def test_a_share_is_written_with_a_percent_sign_or_without(text: str, share: int) -> None:
    assert sample_percent(text) == share


@pytest.mark.parametrize("share", [0, 1, 30, 99, 100, 250])
def test_a_share_of_all_deliveries_is_sampled_and_of_each_stretch(share: int) -> None:
    chosen = is_sampled(np.arange(1, 100_001), share)
    for stretch in np.split(chosen, 10):
        assert abs(stretch.mean() * 100 - min(share, 100)) < 2
    assert (chosen == is_sampled(np.arange(1, 100_001), share)).all()
