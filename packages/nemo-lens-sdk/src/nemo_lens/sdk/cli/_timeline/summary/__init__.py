"""``nemo-lens timeline --summary``: which rank is slow, in which phase, and the times of each span name."""
