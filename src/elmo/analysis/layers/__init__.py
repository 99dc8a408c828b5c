"""What each layer knows."""
