package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kornel.internal/clients/go/fakecore"
	"kornel/shim_k8s/scheduler"
)

func TestAShimThatTheCoreDoesNotKnowSaysSo(t *testing.T) {
	core := fakecore.New()
	core.ServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(
		func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, status.Error(codes.Unauthenticated, "the token is not valid")
		},
	)}
	core.Serve()
	defer core.Stop()
	remote := scheduler.New(scheduler.Options{
		Address: fakecore.Address, DialOptions: []grpc.DialOption{core.Dialer()}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	defer remote.Stop()
	remote.TellStates(func(*si.UpdateContainerSchedulingStateRequest) {})
	go func() {
		_, _ = remote.RegisterResourceManager(&si.RegisterResourceManagerRequest{RmID: "mycluster"}, nil)
	}()
	health := &health{remote: remote}
	health.leading.Store(true)
	var found error
	for limit := time.Now().Add(deadline); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		if found = health.ready(); found != nil && strings.HasPrefix(found.Error(), "unauthenticated: ") {
			return
		}
	}
	t.Fatalf("readiness says %v", found)
}
