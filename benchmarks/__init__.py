"""Speed and memory of rankbound compared with other libraries: `make bench`, or `python -m benchmarks PART...`.

Each part is one module whose ``run(quick)`` yields findings as it makes them: a `Row` (our time next to a peer's), a
`Growth` curve, or a `Missing` peer. None of this is in the wheel.
"""
