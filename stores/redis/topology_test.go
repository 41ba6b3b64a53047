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
	nodes := startCluster(t, 3, "--cluster-node-timeout", "20000")
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

// clusterSlots is the number of slots of each of three masters; the last master has fewer.
const clusterSlots = 5462

// startCluster starts a Cluster of three masters and other nodes without slots.
func startCluster(t *testing.T, n int, args ...string) (nodes []*server) {
	t.Helper()
	for range n {
		all := append([]string{"--cluster-enabled", "yes", "--cluster-port", freePort()}, args...)
		nodes = append(nodes, startServer(t, all...))
	}
	for i, node := range nodes {
		if from := i * clusterSlots; i < 3 {
			to := min(from+clusterSlots, 16384) - 1
			command(t, node.url(), "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(from), fmt.Sprint(to))
		}
		command(t, nodes[0].url(), "CLUSTER", "MEET", "127.0.0.1", node.port, node.args[3])
	}
	for _, node := range nodes {
		awaitText(t, node, []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d\r", n)}, "CLUSTER", "INFO")
	}
	return nodes
}

// awaitText waits until the reply of a command contains all texts.
func awaitText(t *testing.T, s *server, texts []string, args ...string) {
	t.Helper()
	await(t, func() error {
		reply := command(t, s.url(), args...)
		got, err := reply.ToString()
		for _, text := range texts {
			if !strings.Contains(got, text) {
				return fmt.Errorf("%v lacks %q: %w: %s", args, text, err, got)
			}
		}
		return err
	})
}

func TestSentinel(t *testing.T) {
	url := startSentinel(t, startServer(t)).url() + "?master_set=main"
	useAll(t, open(t, url, calm()))
	runReplicas(t, url)
}

// startSentinel starts a Sentinel of a master, with further lines of its configuration.
func startSentinel(t *testing.T, master *server, lines ...string) *server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor main 127.0.0.1 " + master.port + " 1\n" + strings.Join(lines, "\n") + "\n"
	must(t, os.WriteFile(config, []byte(text), 0o600))
	sentinel := &server{program: master.program, port: freePort()}
	sentinel.command = []string{config, "--sentinel", "--bind", "127.0.0.1", "--port", sentinel.port}
	must(t, sentinel.start())
	t.Cleanup(sentinel.kill)
	return sentinel
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
