"""`python -m benchmarks.verdict` counts the verdicts on all tables."""

from benchmarks.verdict.count import main

main()
