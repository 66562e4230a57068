"""Families of samples from plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kornel.core.service.durations import Durations

Labelled = (
    Mapping[str, float]
    | Mapping[tuple[str, str], float]
    | Mapping[tuple[str, str, str], float]
    | Mapping[tuple[str, str, str, str], float]
)
"""By the value of the one label, or those of all."""


def make_counter(name: str, text: str, value: float) -> CounterMetricFamily:
    """Returns one number that only grows. *name* ends in ``_total``."""
    return CounterMetricFamily(name, text, value=value)


def make_counters(name: str, text: str, labels: Sequence[str], values: Labelled) -> CounterMetricFamily:
    """Returns numbers that only grow, by the values of *labels*."""
    family = CounterMetricFamily(name, text, labels=labels)
    for of, value in values.items():
        family.add_metric([of] if isinstance(of, str) else of, value)
    return family


def make_gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    """Returns one number as of now."""
    return GaugeMetricFamily(name, text, value=value)


def make_gauges(name: str, text: str, labels: Sequence[str], values: Labelled) -> GaugeMetricFamily:
    """Returns numbers as of now, one for each value of *labels*."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for of, value in values.items():
        family.add_metric([of] if isinstance(of, str) else of, value)
    return family


def make_histogram(name: str, text: str, durations: Durations) -> HistogramMetricFamily:
    """Returns how often something took how many seconds."""
    return HistogramMetricFamily(name, text, buckets=list(durations.cumulated_counts()), sum_value=durations.total)


def make_histograms(
    name: str, text: str, labels: Sequence[str], durations: Mapping[str, Durations]
) -> HistogramMetricFamily:
    """Returns how often something took how many seconds, for each value of the one label."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for of, each in durations.items():
        family.add_metric([of], buckets=list(each.cumulated_counts()), sum_value=each.total)
    return family
