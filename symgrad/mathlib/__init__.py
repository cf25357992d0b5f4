"""The library's own functions, each defined once for every back end."""
