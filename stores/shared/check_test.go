package shared_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/stores/check"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

// examine returns the findings of a URL by name. No text of a finding may contain the password.
func examine(t *testing.T, url string) map[string]check.Finding {
	t.Helper()
	all := map[string]check.Finding{}
	name := shared.Check(t.Context(), url, func(f check.Finding) {
		all[f.Name] = f
		if text := strings.Join(append(f.Seen, f.Next, f.Action), "\n"); strings.Contains(text, "hunter2") {
			t.Errorf("%s: the password is in %s", f.Name, text)
		}
	})
	if strings.Contains(name, "hunter2") {
		t.Errorf("the password is in the name %s", name)
	}
	if len(all) != 10 {
		t.Errorf("got %d checks, want 10", len(all))
	}
	return all
}

// want checks the result of a check, and a part of its next step.
func want(t *testing.T, all map[string]check.Finding, name string, s check.Status, next string) {
	t.Helper()
	if f := all[name]; f.Status != s || !strings.Contains(f.Next, next) || next == "" && f.Next != "" {
		t.Errorf("%s: got %s, %q, next %q; want %s, %q", name, f.Status, f.Seen, f.Next, s, next)
	}
}

func TestCheckOfAWorkingServer(t *testing.T) {
	port := start(t, "--requirepass", "hunter2", "--appendonly", "yes", "--maxmemory", "1gb")
	all := examine(t, "redis://:hunter2@127.0.0.1:"+port)
	for _, name := range []string{"url", "network", "tls", "login", "version", "rights", "eviction", "persistence",
		"clock"} {
		want(t, all, name, check.OK, "")
	}
	if f := all["latency"]; f.Status == check.Fail || len(f.Seen) != 1 || !strings.Contains(f.Seen[0], "p99") {
		t.Errorf("latency: got %+v", f)
	}
}

// TestCheckFindsTheReason runs the checks against servers and URLs that do not work.
func TestCheckFindsTheReason(t *testing.T) {
	certificate, key := selfSigned(t)
	withTLS := []string{"--tls-port", "PORT", "--tls-cert-file", certificate, "--tls-key-file", key,
		"--tls-auth-clients", "no", "--tls-ca-cert-file", certificate}
	for _, test := range []struct {
		name   string
		server []string // nil for none
		url    string   // PORT is the port of the server
		check  string
		status check.Status
		next   string
	}{
		{"the URL is invalid", nil, "redis://:hunter2@%zz", "url", check.Fail, "percent-encoded"},
		{"the port is wrong", nil, "redis://:hunter2@127.0.0.1:PORT", "network", check.Fail,
			"correct the host and the port"},
		{"no password is required", []string{}, "redis://127.0.0.1:PORT", "url", check.Warn, "require a password"},
		{"the server has no TLS", []string{}, "rediss://:hunter2@127.0.0.1:PORT", "tls", check.Fail,
			"redis:// without TLS"},
		{"the server requires TLS", withTLS, "redis://:hunter2@127.0.0.1:PORT", "login", check.Fail,
			"needs rediss://"},
		{"the certificate is not trusted", withTLS, "rediss://:hunter2@127.0.0.1:PORT", "tls", check.Fail, "trusts"},
		{"the password is wrong", []string{"--requirepass", "right"}, "redis://:hunter2@127.0.0.1:PORT", "login",
			check.Fail, "correct the user and the password"},
		{"the password is missing", []string{"--requirepass", "right"}, "redis://127.0.0.1:PORT", "login", check.Fail,
			"add the password"},
		{"the user may run no scripts", user("app on >hunter2 ~* &* +@all -@scripting"),
			"redis://app:hunter2@127.0.0.1:PORT", "rights", check.Fail, "+@scripting"},
		{"the user may not use the keys", user("app on >hunter2 ~other:* &* +@all"),
			"redis://app:hunter2@127.0.0.1:PORT", "rights", check.Fail, "~patchbay:*"},
		{"the user may not read INFO", user("app on >hunter2 ~* &* +@all -info"),
			"redis://app:hunter2@127.0.0.1:PORT", "eviction", check.Warn, "+info"},
		{"the server evicts keys", []string{"--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"},
			"redis://127.0.0.1:PORT", "eviction", check.Fail, "noeviction"},
		{"the memory is unlimited", []string{}, "redis://127.0.0.1:PORT", "eviction", check.Warn, "set maxmemory"},
		{"the append-only file is off", []string{}, "redis://127.0.0.1:PORT", "persistence", check.Warn,
			"appendonly yes"},
		{"the server is a replica", []string{"--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes"},
			"redis://127.0.0.1:PORT", "version", check.Fail, "address of the master"},
	} {
		t.Run(test.name, func(t *testing.T) {
			port := ""
			if test.server != nil {
				port = start(t, test.server...)
			} else {
				port = freePort(t)
			}
			all := examine(t, strings.ReplaceAll(test.url, "PORT", port))
			want(t, all, test.check, test.status, test.next)
			if f := all["clock"]; slices.Contains([]string{"url", "network", "tls", "login"}, test.check) &&
				test.status == check.Fail && f.Status != check.Skipped {
				t.Errorf("clock: got %s after %s failed, want skipped", f.Status, test.check)
			}
		})
	}
}

func TestCheckOfAServerThatReadsItsData(t *testing.T) {
	dir := t.TempDir()
	port := start(t, "--dir", dir)
	command(t, port, "EVAL", "for i = 1, 1000 do redis.call('SET', i, string.rep(i, 1000)) end return 1", "0")
	command(t, port, "SAVE")
	// The server reads for 100 seconds, and answers meanwhile.
	port = start(t, "--dir", dir, "--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024")
	want(t, examine(t, "redis://127.0.0.1:"+port), "login", check.Fail, "reads its data")
}

// user returns the arguments of a server with a user.
func user(rule string) []string { return append([]string{"--user"}, strings.Fields(rule)...) }

// selfSigned returns the paths of a certificate that nobody trusts, and of its key.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}
