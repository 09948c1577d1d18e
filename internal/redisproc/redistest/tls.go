package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/ports"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// StartTLS starts n nodes that listen with TLS as well, at addresses of their own, and returns those and the file of the
// certificate that clients are to trust. The nodes' own addresses are without TLS. args are further ones for redis-server.
func StartTLS(t testing.TB, n int, args ...string) (nodes []*redisproc.Node, addresses []string, certificate string) {
	t.Helper()
	certFile, keyFile := writeCertificate(t)
	for range n {
		port, err := ports.Reserve()
		require.NoError(t, err)
		t.Cleanup(port.Close)
		_, number, err := net.SplitHostPort(port.Addr)
		require.NoError(t, err)
		nodes = append(nodes, Start(t, redisproc.Options{TCP: true, Args: append([]string{
			"--tls-port", number, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile, "--tls-auth-clients", "no",
		}, args...)}))
		addresses = append(addresses, port.Addr)
	}
	return nodes, addresses, certFile
}

// writeCertificate writes a certificate for 127.0.0.1 that vouches for itself.
func writeCertificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redlock test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}
