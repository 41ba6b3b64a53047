package cluster_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/replica"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// listen returns a node with a key, which serves its key.
func listen(t *testing.T, leases replica.LeaseStore, key string) *cluster.Node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.New(l, &cluster.Options{Leases: leases, Key: []byte(strings.Repeat(key, 32))})
	if err != nil {
		t.Fatal(err)
	}
	n.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// A key must be long enough that nobody can guess it.
func TestKeyIsLong(t *testing.T) {
	leases := &replica.Memory{}
	for size, want := range map[int]bool{31: false, 32: true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		key := []byte(strings.Repeat("k", size))
		node, err := cluster.New(l, &cluster.Options{Leases: leases, Key: key})
		if (err == nil) != want {
			t.Errorf("%d bytes: got %v", size, err)
		}
		if err == nil {
			err = node.Close()
		} else {
			err = l.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Only a host with the same key reaches another host.
func TestKeyAuthenticatesHosts(t *testing.T) {
	leases := &replica.Memory{}
	a, b, c := listen(t, leases, "k"), listen(t, leases, "k"), listen(t, leases, "o")
	lease, _, err := a.Take(t.Context(), "s", "1")
	if err != nil || !lease.IsValid() {
		t.Fatalf("got %v", err)
	}
	for _, n := range []*cluster.Node{b, c} {
		_, peer, err := n.Take(t.Context(), "s", "2")
		if err != nil || peer == nil || peer.Token != lease.Token {
			t.Fatalf("got %+v, %v", peer, err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, peer.URL(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := peer.RoundTrip(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if (n == b) != (err == nil) || n == c && !errors.Is(err, cluster.ErrOtherKey) {
			t.Errorf("same key: %t; got %v", n == b, err)
		}
		plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if res, err := plain.Get(strings.Replace(peer.URL(), "https:", "http:", 1)); err == nil {
			if _ = res.Body.Close(); res.StatusCode != http.StatusBadRequest { // of the TLS server
				t.Errorf("without TLS: got %s", res.Status)
			}
		}
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if lease.IsValid() {
		t.Error("the lease is valid after its end")
	}
	if l, _, err := b.Take(t.Context(), "s", "3"); err != nil || l == nil || l.Token <= lease.Token {
		t.Errorf("got %+v, %v", l, err)
	}
}
