// Program kornel-shim-k8s runs Apache YuniKorn's Kubernetes shim, as it is released, against a Kornel core.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/apache/yunikorn-k8shim/pkg/client"
	"github.com/apache/yunikorn-k8shim/pkg/conf"
	"github.com/apache/yunikorn-k8shim/pkg/plugin/predicates"
	"github.com/apache/yunikorn-k8shim/pkg/shim"

	"kornel.internal/clients/go/kornel"
	"kornel/shim_k8s/groups"
	"kornel/shim_k8s/scheduler"
	"kornel/shim_k8s/tasks"
)

// defaultListen is the address at which metrics and health are served.
const defaultListen = ":9091"

type settings struct {
	core, listen, lease, identity string
	credentials                   kornel.Credentials
	leaseDuration                 time.Duration
	annotate                      string
}

func readSettings() settings {
	s := settings{credentials: kornel.CredentialsFromEnvironment()}
	hostname, _ := os.Hostname()
	flag.StringVar(&s.core, "core", fromEnvironment("KORNEL_ADDRESS", "127.0.0.1:50051"), "address of the core, or of several that share a journal, with commas between them (KORNEL_ADDRESS)")
	flag.StringVar(&s.credentials.CA, "ca", s.credentials.CA, "PEM file of the CA that signed the core's certificate (KORNEL_CA)")
	flag.StringVar(&s.credentials.Certificate, "cert", s.credentials.Certificate, "certificate to show the core (KORNEL_CERT)")
	flag.StringVar(&s.credentials.Key, "key", s.credentials.Key, "private key of --cert (KORNEL_KEY)")
	flag.StringVar(&s.credentials.TokenFile, "token-file", s.credentials.TokenFile, "bearer token to show the core (KORNEL_TOKEN_FILE)")
	flag.StringVar(&s.credentials.ServerName, "server-name", s.credentials.ServerName, "name in the core's certificate, if not the host of its address (KORNEL_SERVER_NAME)")
	flag.StringVar(&s.listen, "listen", defaultListen, "address at which to serve metrics and health; empty: do not serve them")
	flag.StringVar(&s.lease, "lease", "kornel-shim-k8s", "name of the Lease, in the shim's namespace, that the scheduling shim holds; empty: no leader election")
	flag.DurationVar(&s.leaseDuration, "lease-duration", 15*time.Second, "how long others wait for a silent holder of the Lease")
	flag.StringVar(&s.identity, "identity", fromEnvironment("POD_NAME", hostname), "name of this shim in the Lease (POD_NAME)")
	flag.StringVar(&s.annotate, "annotate-groups", "", "print the manifests of this file (-: standard input) with YuniKorn's annotations in the place of PodGroups, and end")
	flag.Parse()
	return s
}

func fromEnvironment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func main() {
	settings := readSettings()
	if settings.annotate != "" {
		if err := annotateGroups(settings.annotate, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, settings); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// annotateGroups writes the objects of a file with YuniKorn's annotations, one JSON document a line.
func annotateGroups(path string, to io.Writer) error {
	from := os.Stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	objects, err := groups.Read(from)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := groups.Annotate(objects); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	encoder := json.NewEncoder(to)
	for _, each := range objects {
		if err := encoder.Encode(each.Object); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, settings settings) error {
	predicates.EnableOptionalKubernetesFeatureGates()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	remote := scheduler.New(scheduler.Options{Address: settings.core, Credentials: settings.credentials, Logger: logger})
	health := &health{remote: remote}
	if settings.listen != "" {
		server, err := serveHTTP(settings.listen, remote, health)
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return lead(ctx, settings, logger, &scheduling{remote: remote, health: health, logger: logger})
}

// scheduling is the work of the shim that holds the Lease.
type scheduling struct {
	remote *scheduler.Remote
	health *health
	logger *slog.Logger
}

func (s *scheduling) pause() {
	s.health.paused.Store(true)
	s.remote.Pause()
}

func (s *scheduling) resume() {
	s.remote.Resume()
	s.health.paused.Store(false)
}

// run runs the shim until ctx is done, or until nothing can be scheduled any more.
func (s *scheduling) run(ctx context.Context) error {
	s.health.leading.Store(true)
	remote := s.remote
	// The configuration is read only now, because it may have changed while this shim waited for the Lease.
	configMaps, err := client.LoadBootstrapConfigMaps()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err := conf.UpdateConfigMaps(configMaps, true); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	k8shim := shim.NewShimScheduler(remote, conf.GetSchedulerConf(), configMaps)
	remote.FindPods(tasks.FindPods(k8shim.GetContext))
	kube := client.NewKubeClient(conf.GetSchedulerConf().KubeConfig)
	remote.TellStates(tasks.WriteReasons(k8shim.GetContext, kube.UpdateStatus, s.logger))
	started := make(chan error, 1)
	go func() { started <- k8shim.Run() }()
	select {
	case err := <-started:
		if err != nil {
			return fmt.Errorf("start the shim: %w", err)
		}
	case <-ctx.Done():
		// The shim still waits for a core, or for the API server.
		remote.Stop()
		return nil
	}
	s.logger.Info("scheduling", "scheduler", conf.GetSchedulerConf().SchedulerName)
	clients := kube.GetClientSet()
	repairer := &tasks.Repairer{
		Context:     k8shim.GetContext,
		Clients:     clients,
		Reported:    remote.Reported,
		Unconfirmed: remote.Unconfirmed,
		Repeat:      remote.Repeat,
		Repaired:    remote.NoteRepair,
		Logger:      s.logger,
	}
	repairing, stopRepairing := context.WithCancel(ctx)
	defer stopRepairing()
	go repairer.Run(repairing)
	go func() {
		if err := tasks.WatchNodes(repairing, clients, s.logger, remote.NodeChanged); err != nil {
			s.logger.Error("changes of nodes are not seen", "error", err)
		}
	}()
	select {
	case <-ctx.Done():
		k8shim.Stop()
		remote.Stop()
		return nil
	case <-remote.Done():
		if err := remote.Err(); err != nil {
			return err
		}
		return errors.New("the connection to the core has ended")
	}
}
