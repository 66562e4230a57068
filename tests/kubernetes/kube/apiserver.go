package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// serveAPI serves the API of Kubernetes, with the etcd behind it in the same process, until a signal comes.
func serveAPI(arguments []string) error {
	flags := flag.NewFlagSet("apiserver", flag.ExitOnError)
	directory := flags.String("directory", "", "where data, keys and certificates are kept")
	port := flags.Int("port", 0, "the port of the API server")
	tokens := flags.String("tokens", "", "CSV file of what clients show: token, user, UID, groups")
	_ = flags.Parse(arguments)
	store, err := startEtcd(filepath.Join(*directory, "etcd"))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer store.Close()
	keys := filepath.Join(*directory, "accounts.pem")
	if err := writeKey(keys); err != nil {
		return err
	}
	command := app.NewAPIServerCommand()
	command.SetArgs([]string{
		"--etcd-servers=http://" + store.Clients[0].Addr().String(),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(*port),
		"--cert-dir=" + filepath.Join(*directory, "certificates"),
		"--token-auth-file=" + *tokens, "--authorization-mode=RBAC",
		// No controllers run here that would make service accounts, or take the taints of new nodes away again.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keys, "--service-account-signing-key-file=" + keys,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--enable-priority-and-fairness=false", "--max-requests-inflight=2000", "--max-mutating-requests-inflight=2000",
	})
	return command.Execute()
}

// startEtcd starts a store that does not wait for the disk, with listeners on ports that were free a moment ago.
func startEtcd(directory string) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Dir = directory
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	clients, err := freeAddress()
	if err != nil {
		return nil, err
	}
	peers, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	store, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-store.Server.ReadyNotify():
		return store, nil
	case err := <-store.Err():
		return nil, err
	case <-time.After(time.Minute):
		store.Close()
		return nil, fmt.Errorf("not ready within a minute")
	}
}

func freeAddress() (url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer func() { _ = listener.Close() }()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}

// writeKey makes the key that signs service accounts' tokens, once: a server that starts again keeps it.
func writeKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return os.WriteFile(path, text, 0o600)
}
