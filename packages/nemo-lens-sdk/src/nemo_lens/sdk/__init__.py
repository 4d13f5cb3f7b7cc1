"""The OpenTelemetry side of NeMo Lens: the backend that the API wheel finds, exporters, resources, command line."""
