"""Recording numbers by group and key; nothing here raises."""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Mapping

from nemo_lens.api import backend
from nemo_lens.api._diagnostics import debug_once, is_news, warn, warn_once
from nemo_lens.api._numbers import number, why_unusable
from nemo_lens.api._proxies import ProxyMeter
from nemo_lens.api._values import INT64_MAX, INT64_MIN, OnDeviceError, type_name
from nemo_lens.api.attributes import clean_attributes
from nemo_lens.api.fallbacks import NULL_INSTRUMENT, NULL_METER
from nemo_lens.api.instruments import registry
from nemo_lens.api.instruments.recorders import recorders_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nemo_lens.api.attributes import AttributeValue
    from nemo_lens.api.instruments.recorders import MeterRecorders, Recorder
    from nemo_lens.api.instruments.spec import MetricSpec


# What each thread is asked to record while it records already, as by a signal handler: it would wait for ever for a
# lock of the SDK's aggregation that the code it interrupted holds. That code records it.
_underway: dict[int, list[tuple[Any, ...]]] = {}
# More than that come only where the entry was left behind, by an interrupt between two lines.
_MAX_WAITING = 1000


def record_metrics(
    meter: Any,
    group: str,
    values: Mapping[str, Any] | None = None,
    /,
    *,
    attributes: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Record values of a group's metrics; never raise.

    A problem (a group, key, value or attributes that cannot be used, a meter or instrument that fails) is one WARNING
    of the logger ``nemo_lens`` for each distinct one, and the other values are recorded. With a meter that does
    nothing, such as one of ``get_meter`` while telemetry is not set up, nothing is looked at.

    Args:
        meter: ``handle.meter``, ``get_meter(...)`` or any OpenTelemetry meter; instruments are made once for each.
        group: name of a registered group.
        values: values by key; for keys that are no Python names, or are called ``attributes``.
        attributes: attributes of all these values, cleaned and redacted as those of spans are. Each should have few
            values: past 2000 sets of them on one metric, measurements go to the series ``otel.metric.overflow=true``.
        **kwargs: values by key. A value is a number, or a numpy or CPU torch scalar. None, NaN and infinity are
            skipped.
    """
    if is_off(meter):
        return
    recorders = recorders_of(meter)
    if recorders is None or recorders.does_nothing:
        return
    me = get_ident()
    waiting = _underway.get(me)
    if waiting is not None and len(waiting) < _MAX_WAITING:
        waiting.append((meter, group, values, attributes, kwargs))
        return
    try:
        waiting = _underway[me] = waiting or []
        _record(meter, recorders, group, values, attributes, kwargs)
    finally:
        _underway.pop(me, None)
    while waiting:
        meter, group, values, attributes, kwargs = waiting.pop(0)
        record_metrics(meter, group, values, attributes=attributes, **kwargs)


def is_off(meter: Any) -> bool:
    """Return whether a meter is one of this library while telemetry is off, so that nothing is looked at."""
    return meter is NULL_METER or (type(meter) is ProxyMeter and backend.current is backend.NOOP_BACKEND)


def _record(
    meter: Any, recorders: MeterRecorders, group: str, values: Any, attributes: Any, kwargs: dict[str, Any]
) -> None:
    try:
        specs = registry.groups.get(group)
        if specs is None:
            _warn_of_group(group)
            return
        if values is not None:
            kwargs = _united(group, values, kwargs)
        cleaned = cleaned_attributes(group, attributes) if attributes is not None else None
        attribute_key = frozenset(cleaned.items()) if cleaned else None
        for key, value in kwargs.items():
            if value is None:
                continue
            spec = specs.get(key)
            recorder = recorders.get(spec) if spec is not None else None
            if recorder is None:
                recorder = _recorder(meter, recorders, group, key, spec)
            if type(value) is not float and (type(value) is not int or not INT64_MIN <= value <= INT64_MAX):
                value = _number(group, key, value)
            if recorder is None or value is None:
                continue
            if value - value != 0:  # NaN and infinity
                debug_once(("not finite", group, key), "%r of metric group %r is %r: skipped", key, group, value)
            elif value < 0 and not recorder.takes_negative:
                _warn_of_negative(group, key, spec)
            else:
                try:
                    if attribute_key is None or cleaned is None:
                        recorder.put(value)
                    else:
                        recorder.put(value, recorder.sets.admit(attribute_key, cleaned))
                except Exception as fault:  # noqa: BLE001 - one that fails must not keep the others from being recorded
                    _warn_of_instrument(spec, fault)
    except Exception as fault:  # noqa: BLE001 - recording a number must not be the end of the job
        _warn_of_fault(group, fault)


def cleaned_attributes(group: str, attributes: Any) -> dict[str, AttributeValue]:
    """Return attributes of measurements as they are sent; none, and one WARNING, of what is no mapping; never raise."""
    if attributes is None:
        return {}
    if type(attributes) is dict or _is_mapping(attributes):
        return clean_attributes(attributes)
    warn_once(
        ("metric attributes", group, type_name(attributes)),
        "attributes of metric group %r must be a mapping and not %s; recorded without them",
        group,
        type_name(attributes),
    )
    return {}


def create_metric_instruments(meter: Any, group: str) -> dict[str, Any]:
    """Make the instruments of a group, for the observable ones, which have to be there to be observed; never raise.

    The callbacks are called at each collection from then on, for as long as the group is registered.

    Args:
        meter: ``handle.meter``, ``get_meter(...)`` or any OpenTelemetry meter.
        group: name of a registered group.

    Returns:
        The instruments by key, the same ones at each call. Empty, with one WARNING, when the group or meter cannot be
        used.
    """
    try:
        specs = registry.groups.get(group)
        if specs is None:
            _warn_of_group(group)
            return {}
        if meter is NULL_METER:
            return dict.fromkeys(specs, NULL_INSTRUMENT)
        recorders = recorders_of(meter)
        if recorders is None:
            return {}
        return {key: recorders.make(meter, group, spec).instrument for key, spec in specs.items()}
    except Exception as fault:  # noqa: BLE001 - as above
        _warn_of_fault(group, fault)
        return {}


def _recorder(
    meter: Any, recorders: MeterRecorders, group: str, key: object, spec: MetricSpec | None
) -> Recorder | None:
    if spec is None:
        if is_news(("key", group), key):
            suggestion = registry.suggestion(key, registry.groups.get(group, ()))
            warn("metric group %r has no metric %r; %s", group, key, suggestion)
        return None
    if spec.is_observable:
        warn_once(
            ("observable", group, key),
            "metric %r of group %r is observed by its callback, and is not recorded: "
            "create_metric_instruments(meter, group) switches it on",
            key,
            group,
        )
        return None
    return recorders.make(meter, group, spec)


def _number(group: str, key: str, value: Any) -> int | float | None:
    try:
        return number(value)
    except OnDeviceError as fault:
        warn_once(
            ("value on a device", group, key), "%r of metric group %r is not recorded: %s", key, group, fault.hint
        )
    except Exception as fault:  # noqa: BLE001 - the item() of a value may raise anything
        warn_once(
            ("value", group, key, type_name(value)),
            "%r of metric group %r is not recorded: %s",
            key,
            group,
            why_unusable(fault),
        )
    return None


def _is_mapping(attributes: Any) -> bool:
    try:
        return isinstance(attributes, Mapping)
    except Exception:  # noqa: BLE001 - its class may raise anything
        return False


def _united(group: str, values: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {**values, **kwargs}
    except Exception as fault:  # noqa: BLE001 - a mapping may raise anything
        warn_once(
            ("values", group, type_name(values), type_name(fault)),
            "values of metric group %r must be a mapping of keys to numbers; a %s gave %s",
            group,
            type_name(values),
            type_name(fault),
        )
        return kwargs


def _warn_of_fault(group: object, fault: Exception) -> None:
    if not issubclass(type(group), str):
        _warn_of_group(group)  # one that cannot be hashed, for instance
        return
    name = type_name(fault)
    warn_once(("recording", name), "metrics could not be recorded: %s", name)
    debug_once(("recording trace", name), "recording failed", exc_info=True)


def _warn_of_group(group: object) -> None:
    if not issubclass(type(group), str):
        warn_once(
            ("metric group", type_name(group)), "a metric group is named by a str and not by a %s", type_name(group)
        )
        return
    if is_news("metric group", group):
        warn("no metric group %r is registered; %s", group, registry.suggestion(group, registry.groups))


def _warn_of_negative(group: str, key: str, spec: MetricSpec | None) -> None:
    warn_once(
        ("negative", group, key),
        "a negative value of %r of metric group %r is not recorded: a %s takes none",
        key,
        group,
        spec.kind if spec is not None else "",
    )


def _warn_of_instrument(spec: MetricSpec | None, fault: Exception) -> None:
    name = spec.name if spec is not None else ""
    warn_once(
        ("failing instrument", name, type_name(fault)), "the instrument of %r failed with %s", name, type_name(fault)
    )
    debug_once(("failing instrument trace", name, type_name(fault)), "an instrument failed", exc_info=True)


if hasattr(os, "register_at_fork"):
    # Of threads that are not there, whose idents others may be given.
    os.register_at_fork(after_in_child=_underway.clear)
