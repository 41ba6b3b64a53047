package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// opTimeout limits each operation during a failover. An operation of a store may consist of three.
const opTimeout = time.Second

// A load calls a function from several goroutines until stop.
type load struct {
	calls, failures atomic.Int64
	slowest         atomic.Int64 // nanoseconds
	stop            func()
}

// startLoad starts a load. Each error must be ErrUnavailable.
func startLoad(t *testing.T, call func(ctx context.Context) error) *load {
	l := &load{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				err := call(context.WithoutCancel(ctx))
				for took := int64(time.Since(begin)); took > l.slowest.Load(); {
					l.slowest.Store(took)
				}
				l.calls.Add(1)
				if err != nil {
					l.failures.Add(1)
				}
				if err != nil && !errors.Is(err, redis.ErrUnavailable) {
					t.Errorf("a call during a failover returned %v, want ErrUnavailable", err)
				}
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(l.stop)
	return l
}

// wantBound stops the load. No call took much longer than the timeout, even on a busy machine.
func (l *load) wantBound(t *testing.T) {
	t.Helper()
	l.stop()
	slowest := time.Duration(l.slowest.Load())
	t.Logf("%d of %d calls failed, the slowest took %v", l.failures.Load(), l.calls.Load(), slowest)
	if slowest > 3*opTimeout+5*time.Second {
		t.Errorf("a call took %v, want at most the timeout of %v for each of three operations", slowest, opTimeout)
	}
}

// A listener is a process with a session, a watcher of sessions and a subscriber of a topic.
type listener struct {
	store    *redis.Store
	changes  chan string
	messages chan []byte
}

func listen(t *testing.T, url, key, topic string) *listener {
	t.Helper()
	l := &listener{open(t, url, &redis.Options{Timeout: opTimeout}), make(chan string, 1000), make(chan []byte, 1000)}
	await(t, func() error { return l.store.Sessions().Create(t.Context(), key, replica.Session{}, time.Hour) })
	_, err := l.store.Sessions().Load(t.Context(), key)
	must(t, err)
	t.Cleanup(l.store.Sessions().Watch(func(key string) { l.changes <- key }))
	stop, err := l.store.Bus().Subscribe(t.Context(), topic, func(payload []byte) { l.messages <- payload })
	must(t, err)
	t.Cleanup(stop)
	return l
}

// wantContinued waits until the session can be changed by another process and the listener receives
// the change and messages again. The listener must first have learned that changes and messages may
// be lost.
func (l *listener) wantContinued(t *testing.T, other *redis.Store, key, topic string) {
	t.Helper()
	if got := next(t, l.changes); got != "" {
		t.Errorf("after the failover, the change of %q was reported, want all sessions", got)
	}
	if got := next(t, l.messages); got != nil {
		t.Errorf("after the failover, %q arrived, want nil", got)
	}
	var version uint64
	await(t, func() error {
		current, err := l.store.Sessions().Load(t.Context(), key)
		version = current.Version
		return err
	})
	await(t, func() error {
		err := other.Sessions().Update(t.Context(), key, replica.Session{Version: version}, time.Hour)
		if errors.Is(err, replica.ErrConflict) {
			err = nil // the update before was made
		}
		return err
	})
	for got := next(t, l.changes); got != key; got = next(t, l.changes) {
		if got != "" {
			t.Errorf("the change of %q was reported, want %s", got, key)
		}
	}
	await(t, func() error {
		n, err := other.Bus().Publish(t.Context(), topic, []byte("new"))
		if err == nil && n != 1 {
			err = fmt.Errorf("the message has %d receivers", n)
		}
		return err
	})
	for got := next(t, l.messages); string(got) != "new"; got = next(t, l.messages) {
		if got != nil {
			t.Errorf("%q arrived, want the new message", got)
		}
	}
}

// awaitReplicated waits until a replica has all writes of its master.
func awaitReplicated(t *testing.T, master *server) {
	t.Helper()
	await(t, func() error {
		reply := command(t, master.url(), "INFO", "replication")
		info, err := reply.ToString()
		_, offset, _ := strings.Cut(info, "master_repl_offset:")
		offset, _, _ = strings.Cut(offset, "\r")
		if !strings.Contains(info, "state=online,offset="+offset+",") {
			return fmt.Errorf("the replica lacks writes: %w: %s", err, info)
		}
		return err
	})
}

// After the Sentinels replaced a killed master, sessions, subscriptions and messages continue.
// Until then, calls fail within their timeout.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	startServer(t, "--replicaof", "127.0.0.1", master.port)
	awaitText(t, master, []string{"state=online"}, "INFO", "replication")
	sentinel := startSentinel(t, master, "sentinel down-after-milliseconds main 1000",
		"sentinel failover-timeout main 5000")
	awaitText(t, sentinel, []string{"slaves=1"}, "INFO", "sentinel")
	url := sentinel.url() + "?master_set=main"
	l, other := listen(t, url, "key", "topic"), open(t, url, &redis.Options{Timeout: opTimeout})
	awaitReplicated(t, master)
	calls := startLoad(t, func(ctx context.Context) error {
		_, err := l.store.Sessions().Load(ctx, "key")
		return err
	})
	killed := time.Now()
	master.kill()
	l.wantContinued(t, other, "key", "topic")
	await(t, func() error { return errors.Join(use(t, l.store.States()), use(t, other.States())) })
	t.Logf("all works %v after the master was killed", time.Since(killed))
	calls.wantBound(t)
	if calls.failures.Load() == 0 {
		t.Error("no call failed")
	}
}

// After a replica replaced a killed master of a Cluster, its keys and channels work again. The keys
// of the other masters always work.
func TestClusterFailover(t *testing.T) {
	nodes := startCluster(t, 4, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no",
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0")
	reply := command(t, nodes[0].url(), "CLUSTER", "MYID")
	id, err := reply.ToString()
	must(t, err)
	awaitText(t, nodes[3], []string{id}, "CLUSTER", "NODES")
	command(t, nodes[3].url(), "CLUSTER", "REPLICATE", id)
	awaitText(t, nodes[0], []string{"state=online"}, "INFO", "replication")
	url := nodes[1].url() + "?addr=127.0.0.1:" + nodes[2].port
	isKilled := func(key string) bool { // reports whether the master to kill contains the key
		reply := command(t, nodes[1].url(), "CLUSTER", "KEYSLOT", key)
		slot, err := reply.AsInt64()
		must(t, err)
		return slot < clusterSlots
	}
	find := func(form string, killed bool) string {
		for i := 0; ; i++ {
			if name := fmt.Sprint(i); isKilled(fmt.Sprintf(form, name)) == killed {
				return name
			}
		}
	}
	key, topic := find("patchbay:session:%s", true), find("patchbay:bus:0:%s", true)
	lost, kept := find("patchbay:state:{%s}", true), find("patchbay:state:{%s}", false)
	// A busy machine must not make calls of the other masters fail.
	l, other := listen(t, url, key, topic), open(t, url, &redis.Options{Timeout: 3 * opTimeout})
	for _, key := range []string{lost, kept} {
		must(t, other.States().Put(t.Context(), key, []byte("state"), time.Now().Add(time.Hour)))
	}
	awaitReplicated(t, nodes[0])
	get := func(key string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := other.States().Get(ctx, key)
			return err
		}
	}
	failing, working := startLoad(t, get(lost)), startLoad(t, get(kept))
	killed := time.Now()
	nodes[0].kill()
	l.wantContinued(t, other, key, topic)
	await(t, func() error { return get(lost)(t.Context()) })
	t.Logf("all works %v after the master was killed", time.Since(killed))
	failing.wantBound(t)
	working.wantBound(t)
	if n := working.failures.Load(); n > 0 || failing.failures.Load() == 0 {
		t.Errorf("%d calls of keys of other masters failed, and %d of the killed master; want none and some",
			n, failing.failures.Load())
	}
}
