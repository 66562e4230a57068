package scheduler

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are what a [Remote] has done so far.
type counts struct {
	questions, dependentQuestions, preemptionQuestions, judgements, refusals atomic.Int64
	placed, released, applicationsRejected, configurationsRefused, repairs   atomic.Int64
}

// A metric is one number to be exported, with the function that reads it.
type metric struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	read        func() float64
}

// Collector returns the metrics of a [Remote].
func (r *Remote) Collector() prometheus.Collector {
	c := &collector{}
	counter := func(name, help string, count *atomic.Int64) {
		c.add(name, help, prometheus.CounterValue, func() float64 { return float64(count.Load()) })
	}
	counter("questions_total", "Questions of the core about the nodes on which a pod may run.", &r.counts.questions)
	counter("dependent_questions_total", "Questions about pods that depend on where others run.", &r.counts.dependentQuestions)
	counter("preemption_questions_total", "Questions of the core about the victims that would make room for a pod.", &r.counts.preemptionQuestions)
	counter("judgements_total", "Pairs of a pod and a node that the predicates have judged.", &r.counts.judgements)
	counter("refusals_total", "Pairs of a pod and a node that the predicates have refused.", &r.counts.refusals)
	counter("allocations_total", "Allocations that the core has made.", &r.counts.placed)
	counter("releases_total", "Releases that the core has asked for or confirmed.", &r.counts.released)
	counter("applications_rejected_total", "Applications that the core has rejected.", &r.counts.applicationsRejected)
	counter("configurations_refused_total", "Configurations that the core refused when it came back.", &r.counts.configurationsRefused)
	counter("repairs_total", "Pods and releases that YuniKorn's shim had given up because the API server did not answer, and that were handed to it again.", &r.counts.repairs)
	gauge := func(name, help string, read func() float64) { c.add(name, help, prometheus.GaugeValue, read) }
	gauge("live", "1 while the core knows everything that the shim has reported.", func() float64 {
		if status, _ := r.Status(); status.Live {
			return 1
		}
		return 0
	})
	gauge("queued_entries", "Entries that wait to be sent to the core.", func() float64 {
		status, _ := r.Status()
		return float64(status.Queued)
	})
	gauge("nodes", "Nodes that the shim has reported.", func() float64 {
		status, _ := r.Status()
		return float64(status.Mirror.Nodes)
	})
	gauge("applications", "Applications that the shim has reported and that have not ended.", func() float64 {
		status, _ := r.Status()
		return float64(status.Mirror.Applications)
	})
	gauge("allocations", "Allocations on nodes, without foreign ones.", func() float64 {
		status, _ := r.Status()
		return float64(status.Mirror.Allocations)
	})
	gauge("asks", "Asks that wait for a node.", func() float64 {
		status, _ := r.Status()
		return float64(status.Mirror.Asks)
	})
	c.add("registrations_total", "Registrations at the core that succeeded.", prometheus.CounterValue, func() float64 {
		status, _ := r.Status()
		return float64(status.Registrations)
	})
	c.add("resync_refusals_total", "Entries that the core refused when they were reported again, although it had accepted them before.", prometheus.CounterValue, func() float64 {
		status, _ := r.Status()
		return float64(status.Refused)
	})
	return c
}

type collector struct{ metrics []metric }

func (c *collector) add(name, help string, kind prometheus.ValueType, read func() float64) {
	description := prometheus.NewDesc("kornel_shim_"+name, help, nil, nil)
	c.metrics = append(c.metrics, metric{description, kind, read})
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, each := range c.metrics {
		descriptions <- each.description
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	for _, each := range c.metrics {
		metrics <- prometheus.MustNewConstMetric(each.description, each.kind, each.read())
	}
}
