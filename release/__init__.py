"""The checks of a release: ``python -m release`` builds, verifies and installs the wheels, and uploads nothing."""
