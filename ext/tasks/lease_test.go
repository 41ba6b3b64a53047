package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A sharedStore is a shared store as one of its servers sees it: the server may lose the
// connection.
type sharedStore struct {
	tasks.SharedStore
	leases   *atomic.Value // of a tasks.SharedStore; of all servers
	down     atomic.Bool   // no operation works
	renews   atomic.Bool   // false: Renew does not work
	slow     atomic.Bool   // Renew takes a second
	refuses  atomic.Bool   // Hold does not work
	refusal  atomic.Int64  // how long Hold takes meanwhile
	late     atomic.Bool   // Update returns an error, and changes the record a second later
	slowGet  atomic.Int32  // the number of the next Get that takes 15 seconds
	versions atomic.Int32
	updates  atomic.Int32
}

// shareMemory returns a store in memory as each of n servers sees it.
func shareMemory(n int) []*sharedStore {
	memory, _ := tasks.NewMemory().(tasks.SharedStore)
	leases := new(atomic.Value)
	leases.Store(memory)
	all := make([]*sharedStore, n)
	for i := range all {
		all[i] = &sharedStore{SharedStore: memory, leases: leases}
		all[i].renews.Store(true)
	}
	return all
}

// loseLeases removes all leases from the store.
func (s *sharedStore) loseLeases() { s.leases.Store(tasks.NewMemory()) }

func (s *sharedStore) leaseStore() tasks.SharedStore {
	leases, _ := s.leases.Load().(tasks.SharedStore)
	return leases
}

// pass lets time pass in a bubble of synctest.
func pass(d time.Duration) { <-time.After(d) }

var errDown = errors.New("connection refused")

func (s *sharedStore) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	if s.down.Load() {
		return tasks.Record{}, errDown
	}
	if s.slowGet.Add(-1) == 0 {
		pass(15 * time.Second)
	}
	return s.SharedStore.Get(ctx, owner, id)
}

func (s *sharedStore) Update(ctx context.Context, r tasks.Record) error {
	if s.down.Load() {
		return errDown
	}
	if s.late.Load() {
		time.AfterFunc(time.Second, func() { _ = s.SharedStore.Update(context.WithoutCancel(ctx), r) })
		return errDown
	}
	s.updates.Add(1)
	return s.SharedStore.Update(ctx, r)
}

func (s *sharedStore) Hold(ctx context.Context, holder string, d time.Duration) error {
	if s.refuses.Load() {
		pass(time.Duration(s.refusal.Load()))
		return errDown
	}
	return s.leaseStore().Hold(ctx, holder, d)
}

func (s *sharedStore) Renew(ctx context.Context, holder string, d time.Duration) ([]string, error) {
	if s.slow.Load() {
		pass(time.Second)
	}
	if s.down.Load() || !s.renews.Load() {
		return nil, errDown
	}
	return s.leaseStore().Renew(ctx, holder, d)
}

func (s *sharedStore) Versions(ctx context.Context, ids []string) ([]uint64, error) {
	s.versions.Add(1)
	if s.down.Load() {
		return nil, errDown
	}
	return s.SharedStore.Versions(ctx, ids)
}

// startServers starts a server for each store. Call it in a bubble of synctest.
func startServers(t *testing.T, stores []*sharedStore, add func(i int, b *testServer)) []*testServer {
	t.Helper()
	var all []*testServer
	for i, s := range stores {
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		add(i, b)
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func closeServers(t *testing.T, all []*testServer) {
	t.Helper()
	for _, b := range all {
		b.closeServer(t)
	}
}

// A task that runs at one server is read, awaited, answered and cancelled at another.
func TestTaskOfAnotherServer(t *testing.T) {
	for _, revision := range []string{mcptest.Modern, revision2025} {
		synctest.Test(t, func(t *testing.T) {
			var causes [2]atomic.Value
			servers := startServers(t, shareMemory(2), func(i int, b *testServer) {
				b.tool("ask", nil, func(ctx context.Context) (string, error) {
					name, err := mcp.Ask[string](ctx, "name", "Who?", nil)
					return "hello " + name, err
				})
				b.tool("sleep", nil, func(ctx context.Context) (string, error) {
					select {
					case <-time.After(time.Minute):
						return "slept", nil
					case <-ctx.Done():
						causes[i].Store(context.Cause(ctx))
						return "", ctx.Err()
					}
				})
			})
			var clients [2]*mcptest.Client
			for i, b := range servers {
				o := &mcptest.Options{Extension: mcptest.Extension{ResultTypes: []string{"task"},
					Topics: map[string]string{"notifications/tasks": "taskIds"}}}
				if revision == mcptest.Modern {
					o.Capabilities = taskCapabilities
				}
				clients[i] = mcptest.Connect(t, b.server,
					mcptest.Combination{Transport: mcptest.InMemory, Revision: revision}, o)
			}
			a, b := clients[0], clients[1]
			pass(15 * time.Second) // the first server has noticed the second

			id := beginTask(t, a, "ask", nil).TaskID
			synctest.Wait()
			if got := getTask(t, b, id); got.Status != "input_required" {
				t.Errorf("%s: at the other server: %+v", revision, got)
			}
			answerTask(t, b, id, object{"value": "Ada"})
			if got := finalTask(t, a, id); got.Result.text() != "hello Ada" {
				t.Errorf("%s: answered at the other server: %+v", revision, got)
			}

			id = beginTask(t, a, "sleep", nil).TaskID
			wait := awaitEnd(t, b, id)
			pass(30 * time.Second)
			if got := getTask(t, b, id); got.Status != "working" || wait() {
				t.Errorf("%s: after 30 s: %+v, ended %t", revision, got, wait())
			}
			pass(32 * time.Second)
			if !wait() {
				t.Errorf("%s: the other server did not notice the end of the task", revision)
			}

			id = beginTask(t, a, "sleep", nil).TaskID
			pass(10 * time.Second)
			b.Call("tasks/cancel", object{"taskId": id})
			pass(2 * time.Second)
			if cause, _ := causes[0].Load().(error); !errors.Is(cause, mcp.ErrCancelled) {
				t.Errorf("%s: the run ended with %v, want it to be cancelled", revision, cause)
			}
			if got := getTask(t, a, id); got.Status != "cancelled" {
				t.Errorf("%s: cancelled at the other server: %+v", revision, got)
			}
			closeServers(t, servers)
		})
	}
}

// awaitEnd waits for the end of a task as each form can, and returns a function that reports
// whether the client has learned it.
func awaitEnd(t *testing.T, c *mcptest.Client, id string) func() bool {
	t.Helper()
	if !c.Modern() {
		return c.Send("tasks/result", object{"taskId": id}).Answered
	}
	t.Cleanup(c.Listen(mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{
		"taskIds": json.RawMessage(`["` + id + `"]`)}}))
	return func() bool {
		for _, n := range c.Notifications("notifications/tasks") {
			if got := decode[wireTask](t, n.Params); got.TaskID == id && got.Status == "completed" {
				return true
			}
		}
		return false
	}
}

// When a server loses its connection, its runs end, and a single other server takes over each of
// its tasks, when the lease has ended and not before.
func TestServerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := shareMemory(3)
		var mu sync.Mutex // guards the variables below
		running, runs, most := 0, map[string]int{}, 0
		servers := startServers(t, stores, func(i int, b *testServer) {
			for name, again := range map[string]bool{"once": false, "again": true} {
				b.tool(name, &tasks.ToolOptions{Restartable: again}, func(ctx context.Context) (string, error) {
					mu.Lock()
					runs[name]++
					running++
					most = max(most, running)
					mu.Unlock()
					defer func() {
						mu.Lock()
						running--
						mu.Unlock()
					}()
					select {
					case <-time.After(time.Hour):
						return "ran", nil
					case <-ctx.Done():
						pass(5 * time.Second) // to end
						return "", ctx.Err()
					}
				})
			}
		})
		a, b := connectClient(t, servers[0]), connectClient(t, servers[1])
		pass(15 * time.Second)
		again, once := beginTask(t, a, "again", nil).TaskID, beginTask(t, a, "once", nil).TaskID
		pass(10 * time.Minute)
		stores[0].down.Store(true)
		pass(45 * time.Second)
		if got := getTask(t, b, once); got.Status != "working" {
			t.Errorf("before the lease ended: %+v", got)
		}
		pass(30 * time.Second)
		if got := getTask(t, b, once); got.Status != "failed" {
			t.Errorf("the other server returns %+v, want an error", got)
		}
		stores[0].down.Store(false)
		pass(time.Hour)
		for i, c := range []*mcptest.Client{a, b} {
			if got := getTask(t, c, again); got.Result.text() != "ran" {
				t.Errorf("server %d returns %+v", i, got)
			}
		}
		closeServers(t, servers)
		mu.Lock()
		defer mu.Unlock()
		if runs["again"] != 2 || runs["once"] != 1 || most != 2 {
			t.Errorf("%v runs, %d at the same time, want 2 and 1, and one of each task", runs, most)
		}
	})
}

// A server whose lease another server ended, without its knowledge, does not store its result.
func TestResultAfterLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := shareMemory(2)
		servers := startServers(t, stores, func(i int, b *testServer) {
			b.tool("run", &tasks.ToolOptions{Restartable: true}, func(context.Context) (string, error) {
				pass(80 * time.Second) // the function ignores that its context ends
				return []string{"first", "second"}[i], nil
			})
		})
		a, b := connectClient(t, servers[0]), connectClient(t, servers[1])
		pass(15 * time.Second)
		id := beginTask(t, a, "run", nil).TaskID
		stores[0].renews.Store(false)
		pass(82 * time.Second)
		if got := getTask(t, b, id); got.Status != "working" {
			t.Errorf("when the first run has ended: %+v", got)
		}
		stores[0].renews.Store(true)
		pass(2 * time.Minute)
		if got := getTask(t, a, id); got.Result.text() != "second" {
			t.Errorf("got %+v, want the result of the second server", got)
		}
		closeServers(t, servers)
	})
}

// When the store lost its leases but not its tasks, no server takes over a task while its owner may
// run it. If the owner is gone, another server takes over the task after the time of a lease.
func TestStoreLosesItsLeases(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			stores := shareMemory(3)
			var running, runs, overlaps atomic.Int32
			add := func(_ int, b *testServer) {
				b.tool("run", &tasks.ToolOptions{Restartable: true}, func(ctx context.Context) (string, error) {
					runs.Add(1)
					if running.Add(1) > 1 {
						overlaps.Add(1)
					}
					defer running.Add(-1)
					select {
					case <-time.After(time.Hour):
						return "ran", nil
					case <-ctx.Done():
						pass(5 * time.Second) // to end
						return "", ctx.Err()
					}
				})
			}
			servers := startServers(t, stores[:1], add)
			pass(5 * time.Second) // the first server renews its lease first
			servers = append(servers, startServers(t, stores[1:2], add)...)
			id := beginTask(t, connectClient(t, servers[1]), "run", nil).TaskID
			pass(2 * time.Minute)
			stores[0].loseLeases()
			stores[1].down.Store(gone)
			servers = append(servers, startServers(t, stores[2:], add)...) // has never seen the owner
			a, c := connectClient(t, servers[0]), connectClient(t, servers[2])
			for range 30 {
				pass(time.Second)
				getTask(t, a, id)
				getTask(t, c, id)
			}
			if !gone && runs.Load() != 2 {
				t.Errorf("%d runs, want the owner to run the task again soon", runs.Load())
			}
			pass(50 * time.Second)
			if runs.Load() != 2 || overlaps.Load() != 0 {
				t.Errorf("gone %t: %d runs, %d at the same time as another", gone, runs.Load(), overlaps.Load())
			}
			pass(time.Hour)
			if got := getTask(t, c, id); got.Result.text() != "ran" {
				t.Errorf("gone %t: got %+v", gone, got)
			}
			stores[1].down.Store(false)
			closeServers(t, servers)
		})
	}
}

// Calls that need a lease wait for a store that fails slowly once, not one after the other, and not
// longer than their context.
func TestLeaseIsRefusedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shareMemory(1)[0]
		s.refuses.Store(true)
		s.refusal.Store(int64(100 * time.Millisecond))
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		b.tool("run", nil, func(context.Context) (string, error) { return "ran", nil })
		c := connectClient(t, b)
		calls := make([]*mcptest.Pending, 30)
		for i := range calls {
			calls[i] = c.Send("tools/call", object{"name": "run"})
		}
		pass(150 * time.Millisecond)
		for _, p := range calls {
			if !p.Answered() {
				t.Fatal("a call waits for more than one attempt")
			}
			wantCode(t, "a call without a lease", p.Wait().Error, mcp.CodeInternalError)
		}
		pass(2 * time.Second)
		s.refusal.Store(int64(20 * time.Second))
		began := time.Now()
		var recovered sync.WaitGroup
		for range 2 {
			recovered.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := b.Recover(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
					t.Errorf("Recover returned %v after %v, want the end of its context", err, time.Since(began))
				}
			})
		}
		recovered.Wait()
		pass(30 * time.Second)
		s.refuses.Store(false)
		if got := finalTask(t, c, beginTask(t, c, "run", nil).TaskID); got.Result.text() != "ran" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
	})
}

// acceptance answers the task of startAsking.
var acceptance = object{"q.1": object{"action": "accept", "content": object{"value": "x"}}}

// startAsking starts a server whose task asks a question, and returns the task and its client.
func startAsking(t *testing.T, stores []*sharedStore, runs *atomic.Int32) ([]*testServer, *mcptest.Client, string) {
	t.Helper()
	servers := startServers(t, stores, func(_ int, b *testServer) {
		b.tool("ask", &tasks.ToolOptions{Restartable: true}, func(ctx context.Context) (string, error) {
			runs.Add(1)
			return mcp.Ask[string](ctx, "q", "?", nil)
		})
	})
	c := connectClient(t, servers[0])
	id := beginTask(t, c, "ask", nil).TaskID
	pass(12 * time.Second)
	return servers, c, id
}

// A change that the store makes after it returned an error leaves no task without a run, also if
// no client reads the task.
func TestStoreChangesTaskLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := shareMemory(1)
		var runs atomic.Int32
		servers, c, id := startAsking(t, stores, &runs)
		params := object{"taskId": id, "inputResponses": acceptance}
		stores[0].late.Store(true)
		_, err := c.Try("tasks/update", params)
		wantCode(t, "an answer that the store does not confirm", err, mcp.CodeInternalError)
		stores[0].late.Store(false)
		pass(15 * time.Second)
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		closeServers(t, servers)
	})
}

// An answer that reaches a server that lost its lease is refused, and accepted later.
func TestAnswerWithoutLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := shareMemory(1)
		var runs atomic.Int32
		servers, c, id := startAsking(t, stores, &runs)
		params := object{"taskId": id, "inputResponses": acceptance}
		stores[0].refuses.Store(true)
		stores[0].loseLeases()
		stores[0].slowGet.Store(2) // when the task is about to change
		_, err := c.Try("tasks/update", params)
		wantCode(t, "an answer without a lease", err, mcp.CodeBusy)
		stores[0].refuses.Store(false)
		pass(15 * time.Second)
		c.Call("tasks/update", params)
		if got := finalTask(t, c, id); got.Result.text() != "x" || runs.Load() != 2 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		closeServers(t, servers)
	})
}

// A server that recovers its lease before another server took over its tasks continues them itself.
func TestServerRecoversItsOwnTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := shareMemory(1)
		var runs atomic.Int32
		servers := startServers(t, stores, func(_ int, b *testServer) {
			b.tool("run", &tasks.ToolOptions{Restartable: true}, func(ctx context.Context) (string, error) {
				runs.Add(1)
				select {
				case <-time.After(time.Hour):
					return "ran", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		})
		c := connectClient(t, servers[0])
		id := beginTask(t, c, "run", nil).TaskID
		stores[0].down.Store(true)
		pass(5 * time.Minute)
		stores[0].down.Store(false)
		pass(2 * time.Hour)
		if got := getTask(t, c, id); got.Result.text() != "ran" || runs.Load() != 2 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		closeServers(t, servers)
	})
}

// Of several servers that recover at once, a single server takes over each task, also tasks without
// a holder.
func TestServersRecoverAtOnce(t *testing.T) {
	for _, leases := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			stores := shareMemory(4)
			var runs atomic.Int32
			add := func(b *testServer) {
				b.tool("run", &tasks.ToolOptions{Restartable: true}, func(ctx context.Context) (string, error) {
					runs.Add(1)
					<-ctx.Done()
					return "", ctx.Err()
				})
			}
			old := tasks.Store(stores[0])
			if !leases {
				old = &interceptedStore{Store: old}
			}
			first := newTestServer(t, &tasks.Options{Store: old}, nil)
			add(first)
			c := connectClient(t, first)
			for range 5 {
				beginTask(t, c, "run", nil)
			}
			synctest.Wait()
			first.closeServer(t)
			runs.Store(0)
			var servers []*testServer
			var recovered sync.WaitGroup
			for _, s := range stores[1:] {
				s.slow.Store(true) // all servers read the tasks before one of them takes over the first
				b := newTestServer(t, &tasks.Options{Store: s}, nil)
				add(b)
				servers = append(servers, b)
				recovered.Go(func() {
					if err := b.Recover(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			recovered.Wait()
			for _, s := range stores[1:] {
				s.slow.Store(false)
			}
			pass(5 * time.Minute)
			if runs.Load() != 5 {
				t.Errorf("leases %t: %d runs of 5 tasks", leases, runs.Load())
			}
			closeServers(t, servers)
		})
	}
}

// When a server closes, other servers continue its tasks soon, even if it started a moment ago, and
// the next server at once if there is no other.
func TestServerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		add := func(_ int, b *testServer) {
			b.tool("run", &tasks.ToolOptions{Restartable: true}, func(ctx context.Context) (string, error) {
				if runs.Add(1) == 4 {
					return "ran", nil
				}
				<-ctx.Done()
				return "", ctx.Err()
			})
		}
		stores := shareMemory(4)
		servers := startServers(t, stores[:2], add)
		c := connectClient(t, servers[1])
		id := beginTask(t, c, "run", nil).TaskID
		pass(time.Second)
		servers[1].closeServer(t)
		pass(35 * time.Second)
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		servers[0].closeServer(t)
		third := startServers(t, stores[2:3], add)
		synctest.Wait()
		closeServers(t, third)
		last := startServers(t, stores[3:], add)
		if got := finalTask(t, connectClient(t, last[0]), id); got.Result.text() != "ran" {
			t.Errorf("got %+v", got)
		}
		closeServers(t, last)
	})
}

// A server alone does not look for changes of others, and writes no record more than without
// leases.
func TestServerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := shareMemory(1)
		servers := startServers(t, stores, func(_ int, b *testServer) {
			b.tool("run", nil, func(context.Context) (string, error) { pass(time.Hour); return "ran", nil })
		})
		c := connectClient(t, servers[0])
		id := beginTask(t, c, "run", nil).TaskID
		pass(2 * time.Hour)
		if got := getTask(t, c, id); got.Result.text() != "ran" {
			t.Errorf("got %+v", got)
		}
		if versions, updates := stores[0].versions.Load(), stores[0].updates.Load(); versions != 0 || updates != 1 {
			t.Errorf("%d searches for changes and %d updates, want 0 and 1", versions, updates)
		}
		closeServers(t, servers)
	})
}

// A server with the default store holds no lease, so that it can be collected without Close.
func TestServerIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := func() weak.Pointer[tasks.Server] {
			s := tasks.NewServer(mcp.NewServer("test", "1", nil), nil)
			if err := s.Recover(t.Context()); err != nil {
				t.Error(err)
			}
			return weak.Make(s)
		}()
		pass(5 * time.Minute) // Recover deletes expired tasks after a minute
		runtime.GC()
		runtime.GC()
		if dropped.Value() != nil {
			t.Error("the server is still in memory")
		}
	})
}
