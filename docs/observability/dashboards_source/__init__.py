"""The source of the Grafana dashboards: what each panel asks, in the names of ``nemo_lens.api.semconv``."""
