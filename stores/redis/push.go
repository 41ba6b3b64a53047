package redis

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// repairPause is the time between attempts to repair a connection.
	repairPause = 100 * time.Millisecond
	// maxRepair limits how long a store waits for all nodes of a Cluster before it reports that changes
	// may have been lost. A failover takes about 15 seconds.
	maxRepair = 30 * time.Second
)

// A push is a second connection of a store, on which the server sends the messages of topics and the
// keys that others changed after this process read them. The first use opens the connection. In a
// Cluster, it consists of a connection to each node.
type push struct {
	main   *Store
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines below; they begin only before close

	mu       sync.Mutex // guards the fields below
	attempt  *attempt   // to connect; nil before the first attempt and after a failure
	broken   int        // number of broken connections since changes were last reported as lost
	watchers map[*func(key string)]bool
	topics   map[string]*topic // by channel
}

// An attempt connects to the server.
type attempt struct {
	done  chan struct{} // closed after the fields below are set
	store *Store        // uses the connection, with a breaker of its own
	err   error
}

func newPush(main *Store) *push {
	p := &push{main: main, watchers: map[*func(string)]bool{}, topics: map[string]*topic{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// begin starts a goroutine unless the store was closed. The caller holds mu.
func (p *push) begin(run func()) {
	if p.ctx.Err() == nil {
		p.all.Go(run)
	}
}

// open returns a store that uses the connection.
func (p *push) open(ctx context.Context) (*Store, error) {
	p.mu.Lock()
	a := p.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		p.attempt = a
		p.begin(func() { p.connect(a) })
	}
	p.mu.Unlock()
	select {
	case <-a.done:
		if a.err == nil {
			return a.store, nil
		}
	default:
	}
	_, err := p.main.do(ctx, "connect", 0, func(ctx context.Context) rueidis.RedisResult {
		return wait(ctx, a.done, &a.err)
	})
	if err != nil {
		return nil, err // the store may still connect
	}
	return a.store, nil
}

// wait waits until done is closed, and returns the error that was set before.
func wait(ctx context.Context, done <-chan struct{}, err *error) rueidis.RedisResult {
	select {
	case <-done:
		return rueidis.NewResult(rueidis.RedisMessage{}, *err)
	case <-ctx.Done():
		return rueidis.NewErrorResult(context.Cause(ctx))
	}
}

func (p *push) connect(a *attempt) {
	option := p.main.option
	option.DisableCache = false // the server tracks the reads of this connection; nothing uses the cache
	option.ClientTrackingOptions = []string{"NOLOOP"}
	option.OnInvalidations = p.invalidated
	option.PipelineMultiplex = -1 // a single connection
	client, err := dial(p.ctx, option)
	a.store, a.err = &Store{client: client, server: p.main.server, opts: p.main.opts}, err
	if err != nil {
		p.mu.Lock()
		p.attempt = nil // the next use tries again
		p.mu.Unlock()
	}
	close(a.done)
}

// close closes the connection, and waits for all goroutines.
func (p *push) close() {
	p.mu.Lock()
	p.cancel()
	a := p.attempt
	p.mu.Unlock()
	if a != nil {
		<-a.done
		if a.err == nil {
			a.store.closed.Store(true)
			a.store.client.Close()
		}
	}
	p.all.Wait()
}

// changed reports a change to the watchers.
func (p *push) changed(key string) {
	p.mu.Lock()
	watchers := slices.Collect(maps.Keys(p.watchers))
	p.mu.Unlock()
	for _, changed := range watchers {
		(*changed)(key)
	}
}

// invalidated receives the keys that were changed, or nil if the connection broke or the server was
// flushed.
func (p *push) invalidated(keys []rueidis.RedisMessage) {
	for _, key := range keys {
		text, _ := key.ToString()
		if name, known := strings.CutPrefix(text, p.main.sessionPrefix()); known {
			p.changed(name)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if keys == nil {
		if p.broken++; p.broken == 1 {
			p.begin(p.repair)
		}
	}
}

// repair reports that changes may have been lost, when the server answers again. Until then, the
// records that a process knows remain in use.
func (p *push) repair() {
	for begin := time.Now(); ; {
		p.mu.Lock()
		broken := p.broken
		p.mu.Unlock()
		for !p.answers(begin.Add(maxRepair)) {
			select {
			case <-time.After(repairPause):
			case <-p.ctx.Done():
				return
			}
		}
		p.changed("")
		p.mu.Lock()
		again := p.broken != broken
		if !again {
			p.broken = 0
		}
		p.mu.Unlock()
		if !again {
			return
		}
	}
}

// answers connects to all nodes, and reports whether they answer. In a Cluster, it does not wait for
// a missing node after the limit.
func (p *push) answers(limit time.Time) bool {
	p.mu.Lock()
	a := p.attempt
	p.mu.Unlock()
	if a == nil {
		return true // nobody has read a record
	}
	select {
	case <-a.done:
	case <-p.ctx.Done():
		return false
	}
	if a.err != nil {
		return true
	}
	nodes := a.store.client.Nodes()
	for _, node := range nodes {
		ctx, cancel := context.WithTimeout(p.ctx, p.main.opts.Timeout)
		err := node.Do(ctx, node.B().Ping().Build()).Error()
		cancel()
		if err != nil && (len(nodes) == 1 || time.Now().Before(limit)) {
			return false
		}
	}
	return true
}
