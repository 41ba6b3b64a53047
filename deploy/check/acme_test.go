package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// pebble is the authority for tests of ACME clients by the authors of Let's Encrypt.
const pebble = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3"

const site = "mcp.example.com"

// A gateway gets its certificate from an authority, stores it in its state, and redirects plain HTTP.
func TestGatewayGetsCertificates(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("go", "install", pebble)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := build(t)
	for name, challenge := range map[string]func(tlsPort, plainPort string) string{
		"TLS":  func(tlsPort, _ string) string { return `"tlsPort": ` + tlsPort + `, "httpPort": 1` },
		"HTTP": func(_, plainPort string) string { return `"tlsPort": 1, "httpPort": ` + plainPort },
	} {
		t.Run(name, func(t *testing.T) {
			listen, plain := free(t), free(t)
			port := func(addr string) string { _, p, _ := strings.Cut(addr, ":"); return p }
			authority := startAuthority(t, dir, challenge(port(listen), port(plain)))
			config := filepath.Join(t.TempDir(), "mcp.json")
			text := fmt.Sprintf(`{"mcpServers": {"demo": {"command": %q, "args": ["serve", "--stdio"]}}, "patchbay": {
				"listen": %q, "publicURL": "https://%s", "tls": {"acme": {"hosts": [%[3]q], "acceptTerms": true,
				"directory": "https://%[4]s/dir", "http": %[5]q}}}}`, program, listen, site, authority.addr, plain)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{"PATCHBAY_STATE_DIR=" + t.TempDir()}
			var first *x509.Certificate
			for _, run := range []string{"first", "restarted"} {
				t.Run(run, func(t *testing.T) {
					startGateway(t, env, program, config, authority.file)
					c := authority.dial(t, listen)
					if first == nil {
						first = c
					}
					if !c.Equal(first) {
						t.Error("the gateway did not store its certificate")
					}
					client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
					req, _ := http.NewRequest(http.MethodGet, "http://"+plain+"/mcp", nil)
					req.Host = site
					res, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					_ = res.Body.Close()
					if to := res.Header.Get("Location"); to != "https://"+site+"/mcp" {
						t.Errorf("got status %d to %q, want a redirect to https", res.StatusCode, to)
					}
				})
			}
		})
	}
}

// startGateway starts a gateway that trusts the authority in a file, until the end of the test.
func startGateway(t *testing.T, env []string, program, config, authority string) {
	run(t, env, program, "gateway", "--config", config, "--cacert", authority)
}

// An acmeAuthority is a running Pebble.
type acmeAuthority struct{ addr, management, file string }

// startAuthority starts Pebble in a folder that contains it. Its checks reach this machine at the ports.
func startAuthority(t *testing.T, bin, ports string) *acmeAuthority {
	a := &acmeAuthority{addr: free(t), management: free(t), file: filepath.Join(t.TempDir(), "server.crt")}
	key := filepath.Join(filepath.Dir(a.file), "server.key")
	writeServerCertificate(t, a.file, key)
	text := fmt.Sprintf(`{"pebble": {"listenAddress": %q, "managementListenAddress": %q, "certificate": %q, "privateKey": %q, %s}}`,
		a.addr, a.management, a.file, key, ports)
	config := filepath.Join(filepath.Dir(a.file), "pebble.json")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20"}, filepath.Join(bin, "pebble"), "-config", config,
		"-dnsserver", serveDNS(t))
	eventually(t, func() error {
		conn, err := net.Dial("tcp", a.management)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return a
}

// dial returns the certificate of a gateway at an address, once the root of the authority verifies it.
func (a *acmeAuthority) dial(t *testing.T, addr string) (c *x509.Certificate) {
	t.Helper()
	pool := x509.NewCertPool()
	text, err := os.ReadFile(a.file)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal("the certificate of the authority was not read")
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("https://" + a.management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	root, err := io.ReadAll(res.Body)
	if err != nil || !pool.AppendCertsFromPEM(root) {
		t.Fatalf("got root %q, error %v", root, err)
	}
	eventually(t, func() error {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, ServerName: site})
		if err != nil {
			return err
		}
		c = conn.ConnectionState().PeerCertificates[0]
		return conn.Close()
	})
	return c
}

func writeServerCertificate(t *testing.T, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	secret, keyErr := x509.MarshalPKCS8PrivateKey(private)
	if err := errors.Join(err, keyErr,
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// serveDNS serves the address of this machine for each name over TCP, which Pebble uses, and returns the address of the
// server.
func serveDNS(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer conn.Close()
				for answerDNS(conn) == nil {
				}
			}()
		}
	}()
	return l.Addr().String()
}

// answerDNS answers a question, whose length precedes it.
func answerDNS(conn net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, text); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(text); err != nil {
		return err
	}
	answer := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true}, Questions: m.Questions}
	for _, q := range m.Questions {
		if q.Type == dnsmessage.TypeA {
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}})
		}
	}
	text, err := answer.AppendPack(make([]byte, 2))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(text, uint16(len(text)-2))
	_, err = conn.Write(text)
	return err
}
