"""Compact encoding of the queries and their values, for the page's script to decode."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbound.evaluation.scores import QUERY_TYPE_CODES, is_lower_better

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rankbound.evaluation.scores import ScoreMatrix

MISSING = -32768  # encodes "no value" among 16-bit integers; assets/data.js has the same
_DIGITS = 4  # decimals kept, as many as the page shows


def deflate(content: bytes) -> str:
    """Compress (raw deflate) and encode in base64, which is safe inside a script element."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(compressor.compress(content) + compressor.flush()).decode()


def json_for_script(value: Any) -> str:
    """Encode as JSON that cannot end the script element around it.

    >>> json_for_script({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def pack_queries(scores: ScoreMatrix) -> str:
    """Encode the queries column by column: data set, items, relevant items, type, expected value, then the ids."""
    ids = json.dumps([str(name) for name in scores.query_ids], separators=(",", ":"), ensure_ascii=False).encode()
    codes = {name: code for code, name in enumerate(QUERY_TYPE_CODES)}
    expected, digits = pack_values(scores.expected_values(scores.lead))
    columns = (
        np.array([len(ids), len(scores), digits], "<i4"),
        np.asarray(scores.source_index, "<i4"),
        np.asarray(scores.items, "<i4"),
        np.asarray(scores.relevant, "<i4"),
        np.array([codes[name] for name in scores.query_types(scores.lead).tolist()], "<i4"),
    )
    return deflate(b"".join(column.tobytes() for column in columns) + expected + ids)


def pack_values(values: NDArray[np.float64]) -> tuple[bytes, int]:
    """Encode numbers as 16-bit multiples of 10^-digits; digits is 4, or less where the numbers are large."""
    known = np.isfinite(values)
    largest = float(np.abs(values[known]).max(initial=0.0))
    digits = _DIGITS
    while round(largest * 10.0**digits) >= -MISSING:
        digits -= 1
    scaled = np.full(values.shape, MISSING, "<i2")
    scaled[known] = np.rint(values[known] * 10.0**digits)
    return scaled.tobytes(), digits


def pack_measures(scores: ScoreMatrix) -> list[dict[str, Any]]:
    """Return the name, the direction, the decimals and the encoded values (systems x queries) of each measure."""
    packed: list[dict[str, Any]] = []
    for name, value in scores.values.items():
        content, digits = pack_values(value)
        packed.append({"name": name, "lower": is_lower_better(name), "digits": digits, "packed": deflate(content)})
    return packed


def pack_pairs(scores: ScoreMatrix, measure: str, p_values: Sequence[NDArray[np.float64] | None]) -> dict[str, Any]:
    """Encode the p-values and the mean differences of all pairs of systems, data set by data set.

    ``p_values`` has an array for each data set, in the order of `itertools.combinations`; None where there are none.
    """
    first, second = np.triu_indices(len(scores.systems), k=1)
    levels = np.stack([np.full(len(first), np.nan) if p is None else p for p in p_values])
    gaps = np.stack([_mean_differences(scores, measure, source)[first, second] for source in range(len(p_values))])
    packed_levels, level_digits = pack_values(levels)
    packed_gaps, gap_digits = pack_values(gaps)
    return {"digits": [level_digits, gap_digits], "packed": deflate(packed_levels + packed_gaps)}


def _mean_differences(scores: ScoreMatrix, measure: str, source: int) -> NDArray[np.float64]:
    """Systems x systems: the mean of row minus column over the queries that both have; NaN where there is none."""
    values = scores.values[measure][:, scores.in_data_set(source)]
    known = np.isfinite(values)
    sums, counts = np.where(known, values, 0.0) @ known.T, known.astype(np.float64) @ known.T
    with np.errstate(invalid="ignore"):
        return np.asarray((sums - sums.T) / counts)
