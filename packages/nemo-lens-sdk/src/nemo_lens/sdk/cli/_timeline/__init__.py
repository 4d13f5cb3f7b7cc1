"""The parts of ``nemo-lens timeline``: spans and metrics of many files become one Trace Event picture."""
