"""What the measurements share: models, contenders, clocks, memory, machine, files."""
