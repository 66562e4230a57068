"""Makes families of samples from plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kornel.core.service.metrics.metrics import Durations

Labelled = (
    Mapping[str, float]
    | Mapping[tuple[str, str], float]
    | Mapping[tuple[str, str, str], float]
    | Mapping[tuple[str, str, str, str], float]
)
"""Numbers by the value of the only label, or by the values of all labels."""


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
    """Returns one present number."""
    return GaugeMetricFamily(name, text, value=value)


def make_gauges(name: str, text: str, labels: Sequence[str], values: Labelled) -> GaugeMetricFamily:
    """Returns present numbers, one for each value of *labels*."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for of, value in values.items():
        family.add_metric([of] if isinstance(of, str) else of, value)
    return family


def make_histogram(name: str, text: str, durations: Durations) -> HistogramMetricFamily:
    """Returns a histogram of durations in seconds."""
    return HistogramMetricFamily(name, text, buckets=list(durations.cumulated_counts()), sum_value=durations.total)


def make_histograms(
    name: str, text: str, labels: Sequence[str], durations: Mapping[str, Durations]
) -> HistogramMetricFamily:
    """Returns histograms of durations in seconds, one for each value of the only label."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for of, each in durations.items():
        family.add_metric([of], buckets=list(each.cumulated_counts()), sum_value=each.total)
    return family
