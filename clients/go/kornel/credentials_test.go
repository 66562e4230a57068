package kornel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"kornel.internal/clients/go/fakecore"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// makeCertificate writes a certificate that signs itself, for a name, and returns its files.
func makeCertificate(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate = write(t, filepath.Join(folder, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	key = write(t, filepath.Join(folder, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
	return certificate, key
}

func TestShimProvesWhoItIsOverTLS(t *testing.T) {
	serverCertificate, serverKey := makeCertificate(t, "core.test")
	clientCertificate, clientKey := makeCertificate(t, "shim.test")
	token := write(t, filepath.Join(t.TempDir(), "token"), "first\n")

	pair, err := tls.LoadX509KeyPair(serverCertificate, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	text, err := os.ReadFile(clientCertificate)
	if err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown []string
	core := fakecore.New()
	core.ServerOptions = []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
		})),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			found, _ := metadata.FromIncomingContext(ctx)
			mu.Lock()
			shown = append(shown, found.Get("authorization")...)
			mu.Unlock()
			return handler(ctx, request)
		}),
	}
	serveCore(t, core)
	client := connect(t, core, Options{Credentials: Credentials{
		CA: serverCertificate, Certificate: clientCertificate, Key: clientKey, TokenFile: token, ServerName: "core.test",
	}})
	register(t, client)
	write(t, token, "second\n") // a token is renewed by replacing its file
	register(t, client)
	mu.Lock()
	defer mu.Unlock()
	if len(shown) != 2 || shown[0] != "Bearer first" || shown[1] != "Bearer second" {
		t.Fatalf("shown: %q", shown)
	}
}

func TestNameOfTheAddressIsTheNameToProve(t *testing.T) {
	// "fakecore" is the host of the address that clients are given here.
	for name, wanted := range map[string]error{"fakecore": nil, "other.test": ErrConnectionLost} {
		certificate, key := makeCertificate(t, name)
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		core := fakecore.New()
		core.ServerOptions = []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&pair))}
		serveCore(t, core)
		limit := deadline
		if wanted != nil {
			limit = 200 * time.Millisecond
		}
		client := connect(t, core, Options{ConnectTimeout: limit, Credentials: Credentials{CA: certificate}})
		if _, err := client.Register(withDeadline(t), Registration{}); !errors.Is(err, wanted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCoreOfAnotherNameIsNotTrusted(t *testing.T) {
	certificate, key := makeCertificate(t, "core.test")
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	core := fakecore.New()
	core.ServerOptions = []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&pair))}
	serveCore(t, core)
	client := connect(t, core, Options{
		ConnectTimeout: 200 * time.Millisecond, Credentials: Credentials{CA: certificate, ServerName: "other.test"},
	})
	if _, err := client.Register(withDeadline(t), Registration{}); !errors.Is(err, ErrConnectionLost) {
		t.Fatalf("registered: %v", err)
	}
}

func TestUnusableCredentialsAreToldAtOnce(t *testing.T) {
	folder := t.TempDir()
	token := write(t, filepath.Join(folder, "token"), "secret")
	empty := write(t, filepath.Join(folder, "ca.pem"), "no certificate")
	blank := write(t, filepath.Join(folder, "blank"), "\n")
	for name, each := range map[string]Options{
		"a certificate without its key":       {Address: "core:50051", Credentials: Credentials{Certificate: "c.pem"}},
		"a token in plain text over the wire": {Address: "core.example:50051", Credentials: Credentials{TokenFile: token}},
		"a token that is missing":             {Address: "127.0.0.1:50051", Credentials: Credentials{TokenFile: folder + "/none"}},
		"a token file without a token":        {Address: "127.0.0.1:50051", Credentials: Credentials{TokenFile: blank}},
		"a name to prove without a CA":        {Address: "core:50051", Credentials: Credentials{ServerName: "core.test"}},
		"a CA that is none":                   {Address: "core:50051", Credentials: Credentials{CA: empty}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewClient(each); !errors.Is(err, ErrCredentials) {
				t.Fatalf("taken: %v", err)
			}
		})
	}
	for _, address := range []string{"127.0.0.1:50051", "[::1]:50051", "localhost:50051", "unix:/run/kornel.sock", "dns:///localhost:50051"} {
		if _, err := NewClient(Options{Address: address, Credentials: Credentials{TokenFile: token}}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}
