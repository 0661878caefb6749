"""Benchmarks: time and memory, measured so that the ratios carry over to another machine.

Nothing is imported here, so that the command line can describe the benchmarks without loading torch.
"""
