package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/stores/check"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

// examine returns the findings by name. No text may contain the password.
func examine(t *testing.T, url string, opts *postgres.Options) map[string]check.Finding {
	t.Helper()
	all := map[string]check.Finding{}
	name := postgres.Check(t.Context(), url, opts, func(f check.Finding) {
		all[f.Name] = f
		for _, text := range append(f.Seen, f.Next, f.Action) {
			if strings.Contains(text, password) {
				t.Errorf("%s contains the password: %q", f.Name, text)
			}
		}
	})
	if strings.Contains(name, password) {
		t.Errorf("the name %q contains the password", name)
	}
	return all
}

// want checks the status of a check, and a part of its observations and of its next step.
func want(t *testing.T, all map[string]check.Finding, name string, s check.Status, part string) {
	t.Helper()
	f := all[name]
	if f.Status != s || !strings.Contains(strings.Join(append(f.Seen, f.Next), "\n"), part) ||
		(f.Next == "") != (s == "ok") {
		t.Errorf("%s: got %s, %q, next %q; want %s with %q", name, f.Status, f.Seen, f.Next, s, part)
	}
}

func TestCheckOfAWorkingServer(t *testing.T) {
	opts := newSchema()
	all := examine(t, need(t).url(), opts)
	want(t, all, "tables", "ok", "creates version")
	if n := sql(t, opts.Schema, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", opts.Schema); n[0] != "0" {
		t.Error("the check created the schema")
	}
	open(t, need(t).url(), opts)
	all = examine(t, need(t).url(), opts)
	want(t, all, "url", "ok", "database postgres")
	want(t, all, "tls", "ok", "not encrypted")
	want(t, all, "tables", "ok", "is current")
	want(t, all, "durability", "warn", "set fsync")
	for _, name := range []string{"network", "login", "version", "rights", "connections", "clock"} {
		want(t, all, name, "ok", "")
	}
	if f := all["latency"]; f.Status == "fail" || len(f.Seen) != 1 || !strings.Contains(f.Seen[0], "p99") {
		t.Errorf("latency: got %+v", f)
	}
	sql(t, opts.Schema, "UPDATE {schema}.version SET version = version - 1")
	want(t, examine(t, need(t).url(), opts), "tables", "ok", "upgrades the tables")
	sql(t, opts.Schema, "UPDATE {schema}.version SET version = 999")
	want(t, examine(t, need(t).url(), opts), "tables", "fail", "version 999")
}

// TestCheckFindsTheReason runs the checks with URLs that do not work and with users that lack rights.
func TestCheckFindsTheReason(t *testing.T) {
	opts := newSchema()
	open(t, need(t).url(), opts)
	sql(t, "", "CREATE ROLE guest LOGIN PASSWORD '"+password+"'")
	sql(t, "", "CREATE ROLE hasty LOGIN PASSWORD '"+password+"' CONNECTION LIMIT 3")
	sql(t, "", "ALTER ROLE hasty SET synchronous_commit = off")
	sql(t, "", "ALTER ROLE hasty SET default_transaction_read_only = on")
	server := "postgres://USER:" + password + "@127.0.0.1:" + shared.port + "/postgres"
	as := func(name string) string { return strings.Replace(server, "USER", name, 1) }
	for _, test := range []struct {
		name, url, check string
		status           check.Status
		part             string
	}{
		{"the URL is invalid", as("postgres") + "?sslmode=" + password, "url", "fail", "percent-encoded"},
		{"the authority is missing", as("postgres") + "?sslrootcert=/none.pem", "url", "fail", "/none.pem"},
		{"the port is wrong", strings.Replace(as("postgres"), shared.port, freePort(), 1), "network", "fail",
			"correct the host and the port"},
		{"another address is wrong", strings.Replace(as("postgres"), "@", "@127.0.0.1:"+freePort()+",", 1), "network",
			"warn", "start the server"},
		{"the server has no TLS", as("postgres") + "?sslmode=require", "tls", "fail", "ssl = on"},
		{"the password is wrong", strings.Replace(as("postgres"), password, "wrong", 1), "login", "fail",
			"correct the user and the password"},
		{"the database does not exist", as("postgres") + "s", "login", "fail", "create the database"},
		{"no server accepts writes", as("hasty") + "?target_session_attrs=read-write", "login", "fail",
			"target_session_attrs"},
		{"the user only reads", as("hasty"), "version", "fail", "default_transaction_read_only"},
		{"the user may not read the tables", as("guest"), "tables", "fail", "give the user the rights"},
		{"the user may not use the tables", as("guest"), "rights", "fail", "missing: "},
		{"commits are not durable", as("hasty"), "durability", "warn", ""},
		{"the user may open few connections", as("hasty"), "connections", "warn", "pool_max_conns"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := examine(t, test.url, opts)
			want(t, all, test.check, test.status, test.part)
			if f := all["clock"]; all["login"].Status != "ok" && f.Status != "skipped" {
				t.Errorf("clock: got %s after a failure of the connection, want skipped", f.Status)
			}
		})
	}
	fresh := newSchema()
	want(t, examine(t, as("guest"), fresh), "rights", "fail", "CREATE ON DATABASE postgres")
}

// A connection to another machine is encrypted, unless the operator chose an sslmode. The address 0.0.0.0 reaches
// this machine, and is not a loopback address.
func TestConnectionToAnotherMachineUsesTLS(t *testing.T) {
	plain := strings.Replace(need(t).url(), "127.0.0.1", "0.0.0.0", 1)
	want(t, examine(t, plain, nil), "tls", "fail", "does not support TLS")
	if _, err := postgres.Open(t.Context(), plain, nil); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("Open of a server without TLS returned %v, want ErrUnavailable", err)
	}
	all := examine(t, plain+"?sslmode=disable", nil)
	want(t, all, "tls", "warn", "verify-full")
	want(t, all, "login", "ok", "")
	t.Run("variable", func(t *testing.T) {
		t.Setenv("PGSSLMODE", "prefer")
		want(t, examine(t, plain, nil), "tls", "warn", "not encrypted")
	})

	certificate, key := selfSigned(t)
	secure := startServer(t, "-c", "ssl=on", "-c", "ssl_cert_file="+certificate, "-c", "ssl_key_file="+key)
	url := strings.Replace(secure.url(), "127.0.0.1", "0.0.0.0", 1)
	want(t, examine(t, url, nil), "tls", "fail", "sslrootcert=PATH")
	if _, err := postgres.Open(t.Context(), url, nil); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("Open of a server with another certificate returned %v, want ErrUnavailable", err)
	}
	want(t, examine(t, url+"?sslmode=require", nil), "tls", "warn", "not checked")
	want(t, examine(t, url+"?sslmode=prefer", nil), "tls", "warn", "turn TLS off")
	all = examine(t, url+"?sslrootcert="+certificate, nil)
	want(t, all, "tls", "ok", "TLS 1.3, certificate and name of the server accepted")
	want(t, all, "login", "ok", "")
	open(t, url+"?sslrootcert="+certificate, calm())
}

func TestCheckOfAStandby(t *testing.T) {
	s := startServer(t)
	s.stop()
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	want(t, examine(t, s.url(), nil), "version", "fail", "address of the primary")
}

// selfSigned returns the paths of a certificate for 0.0.0.0 that nobody trusts, and of its key, which the user of
// the server can read.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4zero}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "patchbay-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := giveToServer(dir, certificate, key); err != nil {
		t.Fatal(err)
	}
	return certificate, key
}
