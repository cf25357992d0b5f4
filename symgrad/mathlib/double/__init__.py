"""The library's own functions in float64, for back ends that round every operation as written."""
