"""The senses of one word."""
