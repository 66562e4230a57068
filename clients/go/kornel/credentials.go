package kornel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials name the files with which a shim proves its identity to the core and checks the identity of the core. If
// all are empty, the connection is plain text and the shim has no identity.
//
// The client certificate is read at every handshake and the token at every call, so a file that is replaced takes effect
// without a restart.
type Credentials struct {
	// CA is the PEM file of the CA that signed the core's certificate. With it, or with a certificate, the connection uses
	// TLS.
	CA string
	// Certificate and Key are the PEM files shown to the core. They belong together.
	Certificate, Key string
	// TokenFile holds a bearer token. It is never sent in plain text to another machine.
	TokenFile string
	// ServerName is the name in the core's certificate. It is needed if that is not the host in the core's address.
	ServerName string
}

// CredentialsFromEnvironment returns the credentials in KORNEL_CA, KORNEL_CERT, KORNEL_KEY, KORNEL_TOKEN_FILE and
// KORNEL_SERVER_NAME.
func CredentialsFromEnvironment() Credentials {
	return Credentials{
		CA:          os.Getenv("KORNEL_CA"),
		Certificate: os.Getenv("KORNEL_CERT"),
		Key:         os.Getenv("KORNEL_KEY"),
		TokenFile:   os.Getenv("KORNEL_TOKEN_FILE"),
		ServerName:  os.Getenv("KORNEL_SERVER_NAME"),
	}
}

// usesTLS tells whether TLS is spoken.
func (c Credentials) usesTLS() bool { return c.CA != "" || c.Certificate != "" }

// dialOptions returns how a connection to address proves who the shim is. Every error is an [ErrCredentials].
func (c Credentials) dialOptions(address string) ([]grpc.DialOption, error) {
	if (c.Certificate == "") != (c.Key == "") {
		return nil, fmt.Errorf("%w: a client certificate and its key belong together", ErrCredentials)
	}
	if c.ServerName != "" && !c.usesTLS() {
		// A user who names the server expects the core to prove its name, which it cannot do in plain text.
		return nil, fmt.Errorf("%w: a server name is proved by a certificate: the CA of the core is missing", ErrCredentials)
	}
	var options []grpc.DialOption
	if c.usesTLS() {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	} else {
		if c.TokenFile != "" && !staysOnThisMachine(address) {
			return nil, fmt.Errorf("%w: a token is not sent to %s in plain text: the CA of the core is missing", ErrCredentials, address)
		}
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	if c.TokenFile != "" {
		token := tokenFile{path: c.TokenFile, tls: c.usesTLS()}
		// A missing file is reported now and not at the first call.
		if _, err := token.read(); err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	return options, nil
}

func (c Credentials) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: %s holds no certificate", ErrCredentials, c.CA)
		}
	}
	if c.Certificate == "" {
		return config, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: %s and %s: %w", ErrCredentials, c.Certificate, c.Key, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return config, nil
}

// A tokenFile shows the token in a file to the core at every call.
type tokenFile struct {
	path string
	tls  bool
}

func (t tokenFile) read() (string, error) {
	text, err := os.ReadFile(t.path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%w: %s holds no token", ErrCredentials, t.path)
	}
	return "Bearer " + token, nil
}

// GetRequestMetadata returns the header of one call.
func (t tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	bearer, err := t.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": bearer}, nil
}

// RequireTransportSecurity tells whether gRPC has to refuse plain text.
func (t tokenFile) RequireTransportSecurity() bool { return t.tls }

// staysOnThisMachine tells whether what is sent to address cannot be read elsewhere.
func staysOnThisMachine(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:") {
		return true
	}
	host, _, err := net.SplitHostPort(address[strings.LastIndex(address, "/")+1:])
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
