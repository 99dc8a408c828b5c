"""How predictions are measured: the yardsticks of each task's field."""
