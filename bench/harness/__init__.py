"""The runner behind `make bench`: brokers, workloads, one run, the report. Python's standard library only."""
