package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/apache/yunikorn-k8shim/pkg/client"
	"github.com/apache/yunikorn-k8shim/pkg/conf"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var errLeaseLost = errors.New("another shim holds the Lease")

// work is what the shim does while it holds the Lease. The shim can be started only once in a process, so work that cannot
// renew the Lease is paused and not ended.
type work interface {
	// run works until ctx is done or nothing can be scheduled any more.
	run(context.Context) error
	// pause stops scheduling until resume is called; another shim may take over meanwhile.
	pause()
	resume()
}

// lead runs the work while this shim holds the Lease. It returns when the work has ended or another shim holds the Lease.
// While the holder is unknown, because the API server does not answer, the work is paused.
func lead(ctx context.Context, settings settings, logger *slog.Logger, work work) error {
	if settings.lease == "" {
		return work.run(ctx)
	}
	return leadWith(ctx, client.NewBootstrapKubeClient(conf.GetDefaultKubeConfigPath()).GetClientSet(), settings, logger, work)
}

func leadWith(ctx context.Context, clients kubernetes.Interface, settings settings, logger *slog.Logger, work work) error {
	// The Lease is given up after the work has ended, not when the signal comes.
	holding, release := context.WithCancel(context.Background())
	defer release()
	result := make(chan error, 1)
	var begun, other atomic.Bool // whether the work has begun, and whether another shim holds the Lease
	callbacks := leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {
			logger.Info("holds the Lease", "lease", settings.lease, "identity", settings.identity)
			if begun.Swap(true) {
				work.resume()
				return
			}
			result <- work.run(ctx)
			release()
		},
		OnStoppedLeading: func() {},
		OnNewLeader: func(identity string) {
			logger.Info("the Lease is held", "by", identity)
			if begun.Load() && identity != settings.identity {
				other.Store(true)
				release()
			}
		},
	}
	for {
		elector, err := newElector(clients, settings, callbacks)
		if err != nil {
			return err
		}
		elected := make(chan struct{})
		go func() {
			defer close(elected)
			elector.Run(holding)
		}()
		select {
		case <-elected:
		case <-ctx.Done():
			if !elector.IsLeader() && !begun.Load() {
				release()
			}
			<-elected
		}
		select {
		case err := <-result:
			return err
		default:
		}
		switch {
		case other.Load():
			return errLeaseLost
		case ctx.Err() != nil && begun.Load():
			return <-result
		case ctx.Err() != nil:
			return nil // stopped while it waited for the Lease
		}
		logger.Warn("the Lease could not be renewed: nothing is scheduled until it can", "lease", settings.lease)
		work.pause()
	}
}

func newElector(clients kubernetes.Interface, settings settings, callbacks leaderelection.LeaderCallbacks) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: settings.lease, Namespace: conf.GetSchedulerNamespace()},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: settings.identity},
		},
		LeaseDuration:   settings.leaseDuration,
		RenewDeadline:   settings.leaseDuration * 2 / 3,
		RetryPeriod:     settings.leaseDuration * 2 / 15,
		ReleaseOnCancel: true,
		Callbacks:       callbacks,
	})
}
