package host_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/replica"
)

// A pipeNetwork connects nodes of a cluster in memory.
type pipeNetwork struct {
	mu        sync.Mutex // guards the fields below
	listeners map[string]*pipeListener
}

// A pipeListener accepts the connections of a pipeNetwork at an address.
type pipeListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	close   func()
}

func (l *pipeListener) Network() string { return "pipe" }
func (l *pipeListener) String() string  { return l.address }
func (l *pipeListener) Addr() net.Addr  { return l }
func (l *pipeListener) Close() error    { l.close(); return nil }

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// listen replaces the listener at an address.
func (n *pipeNetwork) listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &pipeListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	if n.listeners == nil {
		n.listeners = map[string]*pipeListener{}
	}
	n.listeners[address] = l
	return l
}

func (n *pipeNetwork) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// failingLeases is a client of a LeaseStore that can fail.
type failingLeases struct {
	*replica.Memory
	fails, endFails atomic.Bool
}

func (l *failingLeases) End(ctx context.Context, name string, token uint64) error {
	if l.fails.Load() || l.endFails.Load() {
		return errBroken
	}
	return l.Memory.End(ctx, name, token)
}

func (l *failingLeases) Grant(ctx context.Context, name, value string, ttl time.Duration) (replica.Holder, error) {
	if l.fails.Load() {
		return replica.Holder{}, errBroken
	}
	return l.Memory.Grant(ctx, name, value, ttl)
}

func (l *failingLeases) Find(ctx context.Context, name string) (replica.Holder, error) {
	if l.fails.Load() {
		return replica.Holder{}, errBroken
	}
	return l.Memory.Find(ctx, name)
}

// A member is a host of a cluster, whose server s is a process of its own.
type member struct {
	*host.Host
	node    *cluster.Node
	leases  *failingLeases
	process *fakeProcess
	end     func()
}

// A testCluster opens hosts of a cluster.
type testCluster struct {
	network pipeNetwork
	leases  replica.Memory
}

var clusterKey = []byte(strings.Repeat("k", 32))

// join opens a host with a server s.
func (tc *testCluster) join(t *testing.T, address string, key []byte, settings string, s mcp.Handler) *member {
	t.Helper()
	leases := &failingLeases{Memory: &tc.leases}
	m := tc.joinWith(t, address, key, settings, s, leases)
	m.leases = leases
	return m
}

// joinWith is join with another store of leases.
func (tc *testCluster) joinWith(
	t *testing.T, address string, key []byte, settings string, s mcp.Handler, leases replica.LeaseStore,
) *member {
	t.Helper()
	m := &member{process: &fakeProcess{handler: s}}
	var err error
	m.node, err = cluster.New(tc.network.listen(address), &cluster.Options{Leases: leases, Key: key,
		Dial: tc.network.dial, Logger: noLog})
	if err != nil {
		t.Fatal(err)
	}
	m.Host = openFile(t, map[string]any{"s": map[string]string{"command": "s"}}, settings, &host.Options{
		Cluster: m.node, Dial: func(ctx context.Context, _ *config.Server) (mcp.Transport, error) {
			return m.process.dial(ctx)
		}})
	m.end = sync.OnceFunc(func() {
		if err := m.Host.Close(); err != nil {
			t.Error(err)
		}
		_ = m.node.Close()
		m.process.work.Wait()
	})
	t.Cleanup(m.end)
	return m
}

const shareCluster = `{"servers":{"s":{"share":"cluster"}}}`

const pauseTime = 8 * time.Second

// counterServer returns a server with a tool that counts its calls, and a tool that takes pauseTime.
func counterServer(name string) *mcp.Server {
	s := simpleServer(name)
	var calls atomic.Int32
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprint(name, calls.Add(1)), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "pause"}, func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-time.After(pauseTime):
			return name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return s
}

// inCluster runs a test with two hosts.
func inCluster(t *testing.T, settings string, test func(t *testing.T, tc *testCluster, a, b *member)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tc := &testCluster{}
		a := tc.join(t, "a:1", clusterKey, settings, counterServer("a"))
		b := tc.join(t, "b:1", clusterKey, settings, counterServer("b"))
		test(t, tc, a, b)
	})
}

func TestServerOfClusterRunsOnce(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		for n := range 3 {
			wantText(t, first, "s__count", fmt.Sprint("a", 2*n+1))
			wantText(t, second, "s__count", fmt.Sprint("a", 2*n+2))
		}
		if n, m := len(a.process.started()), len(b.process.started()); n != 1 || m != 0 {
			t.Errorf("got %d and %d starts, want 1 and 0", n, m)
		}
	})
}

// When the host of a server ends, the next call starts the server at another host, at once.
func TestServerOfClusterMoves(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, tc *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		a.end()
		wantText(t, second, "s__count", "b1")
		again := tc.join(t, "a:1", clusterKey, shareCluster, counterServer("c"))
		wantText(t, clientOfView(t, annOf(again.Host)), "s__count", "b2")
	})
}

// The failure of a call has the same code at each host, and says whether the call may have run.
func TestFailureOfClusterKeepsItsCode(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		for name, c := range map[string]*mcp.Client{"owner": first, "other": second} {
			time.AfterFunc(time.Second, a.process.exit)
			f, text := failureOf(t, c, "s__slow")
			if f == nil || f.Code != hosterr.CodeUnavailable || !f.MayHaveRun || !strings.Contains(text, "disconnected") {
				t.Errorf("%s: got %+v, %q", name, f, text)
			}
			<-time.After(time.Minute)
			wantText(t, c, "s__name", "a")
		}
	})
}
