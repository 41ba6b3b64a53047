package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// Every store works in a Cluster: no operation uses keys of two slots.
func TestCluster(t *testing.T) {
	var nodes []*server
	for range 3 {
		nodes = append(nodes, startServer(t, "--cluster-enabled", "yes", "--cluster-port", freePort(),
			"--cluster-node-timeout", "20000"))
	}
	for i, node := range nodes {
		from, to := i*5462, min((i+1)*5462, 16384)-1
		command(t, node.url(), "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(from), fmt.Sprint(to))
		command(t, nodes[0].url(), "CLUSTER", "MEET", "127.0.0.1", node.port, node.args[3])
	}
	for _, node := range nodes {
		await(t, func() error {
			reply := command(t, node.url(), "CLUSTER", "INFO")
			info, err := reply.ToString()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return fmt.Errorf("the cluster is not ready: %w: %s", err, info)
			}
			return nil
		})
	}
	url := nodes[0].url() + "?addr=127.0.0.1:" + nodes[1].port
	s := open(t, url, calm())
	for i := range 20 { // keys in several slots
		if err := s.States().Put(t.Context(), fmt.Sprint(i), []byte("v"), time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
	}
	useAll(t, s)
	runReplicas(t, url)
}

func TestSentinel(t *testing.T) {
	master := startServer(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor main 127.0.0.1 " + master.port + " 1\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := &server{program: master.program, port: freePort()}
	sentinel.command = []string{config, "--sentinel", "--bind", "127.0.0.1", "--port", sentinel.port}
	if err := sentinel.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sentinel.kill)
	url := sentinel.url() + "?master_set=main"
	useAll(t, open(t, url, calm()))
	runReplicas(t, url)
}

func TestTLS(t *testing.T) {
	dir, port := t.TempDir(), freePort()
	writeCertificate(t, dir)
	startServer(t, "--tls-port", port, "--tls-cert-file", filepath.Join(dir, "cert"),
		"--tls-key-file", filepath.Join(dir, "key"), "--tls-auth-clients", "no")
	url := "rediss://127.0.0.1:" + port
	if s, err := redis.Open(t.Context(), url, calm()); !errors.Is(err, redis.ErrUnavailable) ||
		!strings.Contains(err.Error(), "certificate") {
		if err == nil {
			s.Close()
		}
		t.Errorf("Open with an unknown authority returned %v, want an error about the certificate", err)
	}
	useAll(t, open(t, url+"?skip_verify=true", calm()))
}

// writeCertificate writes a certificate for 127.0.0.1, signed by itself, and its key.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: certificate}, "key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
