package cluster_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/replica"
)

// slowLeases takes a time for each Grant, which the end of a context does not undo.
type slowLeases struct {
	replica.Memory
	takes time.Duration
	hangs bool
}

func (s *slowLeases) Grant(ctx context.Context, name, value string, ttl time.Duration) (replica.Holder, error) {
	if s.hangs {
		<-ctx.Done()
		return replica.Holder{}, context.Cause(ctx)
	}
	h, err := s.Memory.Grant(context.WithoutCancel(ctx), name, value, ttl)
	select {
	case <-time.After(s.takes):
		return h, err
	case <-ctx.Done():
		return replica.Holder{}, context.Cause(ctx)
	}
}

// closedListener is the listener of a node that other hosts do not reach.
type closedListener struct{}

func (closedListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closedListener) Close() error              { return nil }
func (closedListener) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// unreachable returns a node that is used for its leases only.
func unreachable(t *testing.T, leases replica.LeaseStore) *cluster.Node {
	t.Helper()
	n, err := cluster.New(closedListener{}, &cluster.Options{Leases: leases, Key: bytes.Repeat([]byte("k"), 32)})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A request that is cancelled while the store grants the lease can still end the lease.
func TestCancelledTakeLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &slowLeases{takes: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		l, _, err := unreachable(t, leases).Take(ctx, "s", "1")
		if err != nil {
			t.Fatalf("the store may hold a lease that nobody ends: %v", err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		if l, other, err := unreachable(t, leases).Take(t.Context(), "s", "2"); l == nil {
			t.Errorf("got %+v, %v", other, err)
		}
	})
}

// A store that does not answer must not extend the time for which a host uses its lease.
func TestRenewalEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const serves = 18 * time.Second
		leases := &slowLeases{}
		l, _, err := unreachable(t, leases).Take(t.Context(), "s", "1")
		if err != nil {
			t.Fatal(err)
		}
		leases.hangs = true
		began := time.Now()
		if err := l.Keep(t.Context()); !errors.Is(err, cluster.ErrLost) || time.Since(began) != serves {
			t.Errorf("got %v after %v, want %v", err, time.Since(began), serves)
		}
	})
}

// A lease that only the wall clock says is over is renewed before the next interval.
func TestSteppedClockRenewsTheLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, err := unreachable(t, &replica.Memory{}).Take(t.Context(), "s", "1")
		if err != nil {
			t.Fatal(err)
		}
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(t.Context()) }()
		synctest.Wait()
		l.StepWallClock(time.Hour)
		if l.IsValid() {
			t.Error("the lease is valid although a clock says that it is over")
		}
		synctest.Wait() // time does not pass
		if !l.IsValid() {
			t.Error("the lease was not renewed at once")
		}
		if err := errors.Join(l.Release(), <-kept); err != nil {
			t.Error(err)
		}
	})
}

// A program without the key can forge every field of the certificate, but not its signature.
func TestOtherCertificateIsRefused(t *testing.T) {
	leases := &replica.Memory{}
	a, b := listen(t, leases, "k"), listen(t, leases, "k")
	if _, _, err := a.Take(t.Context(), "s", "1"); err != nil {
		t.Fatal(err)
	}
	_, at, err := b.Take(t.Context(), "s", "2")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"cluster.patchbay.invalid"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(at.URL(), "https://"), "/")
	for name, certificates := range map[string][]tls.Certificate{
		"forged": {{Certificate: [][]byte{der}, PrivateKey: key}}, "none": nil,
	} {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: certificates}) //nolint:gosec // the attacker
		if err != nil {
			continue
		}
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) // TLS 1.3 reports the refusal with the first read
		if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Errorf("%s: the host answered", name)
		}
		_ = c.Close()
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Whoever reaches the port cannot fill the log.
func TestRefusedConnectionsAreLoggedSparingly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	n, err := cluster.New(l, &cluster.Options{Leases: &replica.Memory{}, Key: bytes.Repeat([]byte("k"), 32),
		Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	n.Serve(nil)
	for range 30 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		_, _ = c.Read(make([]byte, 1)) // until the host refused the connection
		_ = c.Close()
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	if lines := strings.Count(out.b.String(), "a connection was refused"); lines == 0 || lines > 10 {
		t.Errorf("got %d lines for 30 connections, want at most 10", lines)
	}
}
