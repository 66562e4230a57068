package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kornel/shim_k8s/scheduler"
)

// health knows whether the shim is ready, and serves the answer.
type health struct {
	remote  *scheduler.Remote
	leading atomic.Bool
	paused  atomic.Bool // the Lease could not be renewed
}

// ready returns why the shim does not schedule although it should, or nil. A shim that waits for the Lease counts as ready,
// because it can take over.
func (h *health) ready() error {
	if !h.leading.Load() {
		return nil
	}
	state, registered := h.remote.Status()
	switch {
	case h.paused.Load():
		return errors.New("the Lease could not be renewed: nothing is scheduled until it can")
	case !registered:
		return errors.New("not registered at the core yet")
	case !state.Live && status.Code(state.LastError) == codes.Unauthenticated:
		return fmt.Errorf("unauthenticated: the core does not know the shim by its credentials: %w", state.LastError)
	case !state.Live && state.LastError != nil && state.Registrations == 0:
		return fmt.Errorf("not registered at the core yet: %w", state.LastError)
	case !state.Live && state.LastError != nil:
		return fmt.Errorf("everything has to be reported to the core again: %w", state.LastError)
	case !state.Live:
		return errors.New("the core cannot be reached yet")
	}
	return nil
}

func (h *health) serveReady(response http.ResponseWriter, _ *http.Request) {
	if err := h.ready(); err != nil {
		http.Error(response, err.Error(), http.StatusServiceUnavailable)
		return
	}
	role := "stands by"
	if h.leading.Load() {
		role = "schedules"
	}
	_, _ = fmt.Fprintln(response, role)
}

// serveHTTP serves metrics and health until the server is closed.
func serveHTTP(address string, remote *scheduler.Remote, health *health) (*http.Server, error) {
	registry := prometheus.NewRegistry()
	leading := prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "kornel_shim_leading", Help: "1 while this shim is the one that schedules."},
		func() float64 {
			if health.leading.Load() && !health.paused.Load() {
				return 1
			}
			return 0
		},
	)
	registry.MustRegister(
		remote.Collector(), leading, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz/live", func(response http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(response, "live") })
	mux.HandleFunc("GET /healthz/ready", health.serveReady)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}
