"""Floor of the house: devices, interrupts, files of arrays, settings as files."""
