package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
)

// reload changes the configuration of a host.
func reload(t *testing.T, m *member, file string) {
	t.Helper()
	f, err := config.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Reload(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// After a restart, the requests of all hosts use the new instance.
func TestRestartOfCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		if err := upstream(t, a.Host, "s").Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		wantText(t, second, "s__count", "a3")
		if n := len(upstream(t, a.Host, "s").Status().Instances); n != 1 {
			t.Errorf("got %d instances, want the new instance only", n)
		}
	})
}

// A server that the configuration of its host loses starts at another host.
func TestRemovedServerOfCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		reload(t, a, `{"mcpServers":{"s":{"command":"s","disabled":true}}}`)
		<-time.After(time.Minute)
		wantText(t, second, "s__count", "b1")
	})
}

// A host whose lease could not be ended regains it with the next request.
func TestLeaseOfClusterIsRegained(t *testing.T) {
	inCluster(t, `{"servers":{"s":{"share":"cluster","idle":"1m"}}}`, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		a.leases.endFails.Store(true)
		wantText(t, first, "s__count", "a1")
		for len(upstream(t, a.Host, "s").Status().Instances) > 0 {
			<-time.After(time.Second)
		}
		wantText(t, first, "s__count", "a2")
		wantText(t, second, "s__count", "a3")
	})
}

// A server that is disabled and enabled again, or whose share changes, continues at its host at once.
func TestChangedServerOfCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		slow := make(chan struct{})
		go func() {
			defer close(slow)
			_, _ = second.CallTool(t.Context(), "s__slow", nil)
		}()
		<-time.After(time.Second)
		reload(t, a, `{"mcpServers":{"s":{"command":"s"}},"patchbay":{"servers":{"s":{"share":"shared"}}}}`)
		reload(t, a, `{"mcpServers":{"s":{"command":"s"}},"patchbay":{"servers":{"s":{"share":"cluster"}}}}`)
		wantText(t, first, "s__name", "a")
		<-time.After(5 * time.Second)
		wantText(t, second, "s__name", "a")
		<-slow
	})
}

// A host that leaves finishes the calls of other hosts and refuses new calls, which wait for the next host of the
// server. A server without calls moves at once.
func TestHostLeavesCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		began := time.Now()
		slow := make(chan struct{})
		go func() {
			defer close(slow)
			wantText(t, second, "s__pause", "a")
		}()
		<-time.After(time.Second)
		left := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
			defer cancel()
			left <- a.Operator().LeaveCluster(ctx)
		}()
		<-time.After(time.Second)
		wantText(t, second, "s__count", "b1")
		if took := time.Since(began); took < pauseTime || took > pauseTime+5*time.Second {
			t.Errorf("the next call ran after %v, want after the call in progress of %v", took, pauseTime)
		}
		<-slow
		if err := <-left; err != nil {
			t.Error(err)
		}
		wantFailure(t, first, "s__count", hosterr.CodeUnavailable, "shutting down")
	})
}

// A call of another host that lasts longer than the host may take to leave is cancelled, and answered.
func TestLongCallOfHostThatLeavesCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		ended := make(chan *failure, 1)
		go func() {
			f, _ := failureOf(t, second, "s__slow")
			ended <- f
		}()
		<-time.After(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		if err := a.Operator().LeaveCluster(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if f := <-ended; f == nil || !f.MayHaveRun || ctx.Err() != nil {
			t.Errorf("got %+v", f)
		}
		wantText(t, second, "s__count", "b1")
	})
}
