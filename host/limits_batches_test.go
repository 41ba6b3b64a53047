package host_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// batched is a rate whose tokens processes take in batches of four.
const batched, batchedBurst, batch = `{"limits": {"perCaller": "off", "perTool": "128/s"}}`, 128, 4

// openThree opens three hosts that share their limits, with a client of each.
func openThree(t *testing.T, settings string) (clients []*mcp.Client, stores []*limitClient) {
	t.Helper()
	m := &memoryLimits{}
	hosts := make([]*host.Host, 3)
	for n := range hosts {
		stores = append(stores, &limitClient{memoryLimits: m})
		hosts[n] = openShared(t, simpleServer("a"), settings, stores[n])
	}
	<-time.After(3 * time.Second)
	for _, h := range hosts {
		clients = append(clients, clientOfView(t, annOf(h)))
	}
	return clients, stores
}

// Each process may hold a batch in addition to the burst. A process of a caller takes a batch with a single command.
func TestBurstOfSeveralProcessesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, stores := openThree(t, batched)
		for _, c := range clients {
			wantText(t, c, "all__name", "a")
		}
		<-time.After(time.Minute)
		before := stores[0].takes
		wantAdmitted(t, clients[0], batchedBurst+batch-1)
		if n := stores[0].takes - before; n > batchedBurst/batch+1 {
			t.Errorf("%d calls took tokens %d times, want at most %d", batchedBurst+batch-1, n, batchedBurst/batch+1)
		}
		wantAdmitted(t, clients[1], batch-1)
		wantAdmitted(t, clients[2], batch-1)
	})
}

// A caller who floods three processes gets the rate: no second contains more calls than the rate and a batch of each
// process.
func TestRateOfSeveralProcessesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, _ := openThree(t, batched)
		for _, c := range clients {
			admitted(t, c)
		}
		total := 0
		const seconds, steps = 5, 32
		for range seconds {
			n := 0
			for range steps {
				<-time.After(time.Second / steps)
				for _, c := range clients {
					n += admitted(t, c)
				}
			}
			if n > batchedBurst+3*batch {
				t.Errorf("%d calls were admitted in a second, want at most %d", n, batchedBurst+3*batch)
			}
			total += n
		}
		if want := seconds * batchedBurst; total < want-3*batch || total > want+3*batch {
			t.Errorf("%d calls were admitted, want %d", total, want)
		}
	})
}

// A refused caller is admitted at any process after the time that the refusal names.
func TestRefusedCallerOfBatchesIsAdmittedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, _ := openThree(t, `{"limits": {"perCaller": "off", "perTool": "128/m"}}`)
		for _, c := range clients {
			admitted(t, c)
		}
		for _, c := range clients {
			f, text := failureOf(t, c, "all__name")
			if f == nil {
				t.Fatalf("a call over the rate returned %q", text)
			}
			wait := time.Duration(f.RetryAfterMs) * time.Millisecond
			if every := time.Minute / batchedBurst; wait <= 0 || wait > every+time.Millisecond {
				t.Errorf("the call may be sent again in %v, want at most %v", wait, every)
			}
			<-time.After(wait)
			wantAdmitted(t, c, 1)
		}
	})
}

// A caller below its rate is never refused, although its calls reach the processes in turn, with pauses in which
// batches are unused.
func TestNoTokensOfBatchesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, _ := openThree(t, `{"limits": {"perCaller": "off", "perTool": "1/s burst 64"}}`)
		for _, c := range clients {
			admitted(t, c)
		}
		for range 100 {
			for _, c := range clients {
				<-time.After(1050 * time.Millisecond)
				wantText(t, c, "all__name", "a")
			}
		}
	})
}

// Without the store, a process admits the batch that it holds and its share of the tokens that are left.
func TestBatchesWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, stores := openThree(t, `{"limits": {"perCaller": "off", "perTool": "120/m"}}`) // batches of 3
		for n, c := range clients {
			wantText(t, c, "all__name", "a")
			stores[n].fail(errBroken)
		}
		got := []int{admitted(t, clients[0]), admitted(t, clients[1]), admitted(t, clients[2])}
		if want := []int{2 + 117/3, 2 + 114/3, 2 + 111/3}; !slices.Equal(got, want) {
			t.Errorf("the processes admitted %d, want %d", got, want)
		}
	})
}
