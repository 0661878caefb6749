"""What things cost: time and memory, measured so that the figures mean something on another machine.

Nothing is imported here, so that the command line can describe the benchmarks without waiting for torch.
"""
