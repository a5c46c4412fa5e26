"""Side-by-side measurements; `make bench` runs all of them and records the results beside them. Run with nothing else running."""
