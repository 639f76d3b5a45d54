"""Were the channels of an honest resize mixed with each other, as by whitening or a rotation?

Then every channel is a weighted sum of the honest channels. With more cells than channels that is
no coincidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resize_pos.quality.measures.sampling import Wide, ratio, size, spread
from resize_pos.verify.made_by.parts import Finding

# Cells of both grids: times the channels, and beyond their number. Fewer are sums by chance.
_MORE_CELLS, _MORE_THAN_CHANNELS = 1.25, 16
_ROWS = 256  # that are enough, if they are as many more than the channels
_CHANNELS = 24  # that are explained
_RELATED = 0.3  # cosine with an honest result: another table has less
_INDEPENDENT = 1e-5  # of the largest channel: what each must have beside those before it
_EXACT = 2e-3  # of the variation: what the weights may leave
# … and what a factor for each channel must leave: some methods restore deviations, others round.
_OTHER = 0.15


def find_mixed(table: Wide, results: Sequence[Wide], lengths: Wide) -> Finding | None:
    """Explain channels by those of honest results; `lengths`: one number for each source cell."""
    cells, channels = table.shape
    least = max(int(_MORE_CELLS * channels), channels + _MORE_THAN_CHANNELS)
    if min(cells, len(lengths)) < least:
        return None
    rows = spread(cells, max(least, _ROWS))
    some = spread(channels, _CHANNELS)
    mine = _centred(table[rows])[:, some]
    for result in results:
        honest = _centred(result[rows])
        own = honest[:, some]
        factors = (mine * own).sum(axis=0) / np.maximum((own**2).sum(axis=0), 1e-30)
        if ratio(size(mine - own * factors), size(mine)) < _OTHER:
            continue
        # Smooth functions explain any other table that is as smooth.
        if ratio(float((mine * own).sum()), size(mine) * size(own)) < _RELATED:
            continue
        sums, triangle = np.linalg.qr(honest)
        sizes = np.abs(np.diag(triangle))
        if sizes.min() < _INDEPENDENT * sizes.max():
            continue  # sums of dependent channels would include directions that are not theirs
        if ratio(size(mine - sums @ (sums.T @ mine)), size(mine), 1.0) <= _EXACT:
            words = "every channel is a sum of several channels of an honest resize"
            return Finding("channels mixed", f"{words}: whitened or turned")
    return None


def _centred(rows: Wide) -> Wide:
    return np.asarray(rows - rows.mean(axis=0))
