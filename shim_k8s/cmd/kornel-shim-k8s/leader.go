package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/apache/yunikorn-k8shim/pkg/client"
	"github.com/apache/yunikorn-k8shim/pkg/conf"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var errLeaseLost = errors.New("another shim holds the Lease")

// lead runs work while this shim holds the Lease, and returns when work has ended or the Lease was lost. A program that has
// lost it must end: what it still does would be done twice.
func lead(ctx context.Context, settings settings, logger *slog.Logger, work func(context.Context) error) error {
	if settings.lease == "" {
		return work(ctx)
	}
	return leadWith(ctx, client.NewBootstrapKubeClient(conf.GetDefaultKubeConfigPath()).GetClientSet(), settings, logger, work)
}

func leadWith(ctx context.Context, clients kubernetes.Interface, settings settings, logger *slog.Logger, work func(context.Context) error) error {
	// The Lease is given up after the work has ended, not when the signal comes.
	holding, release := context.WithCancel(context.Background())
	defer release()
	result := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: settings.lease, Namespace: conf.GetSchedulerNamespace()},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: settings.identity},
		},
		LeaseDuration:   settings.leaseDuration,
		RenewDeadline:   settings.leaseDuration * 2 / 3,
		RetryPeriod:     settings.leaseDuration * 2 / 15,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				logger.Info("holds the Lease", "lease", settings.lease, "identity", settings.identity)
				result <- work(ctx)
				release()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				logger.Info("the Lease is held", "by", identity)
			},
		},
	})
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
		if !elector.IsLeader() {
			release()
		}
		<-elected
	}
	select {
	case err := <-result:
		return err
	default:
	}
	if ctx.Err() != nil {
		return nil // stopped while it stood by
	}
	return errLeaseLost
}
