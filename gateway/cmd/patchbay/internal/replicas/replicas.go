// Package replicas finds processes of a gateway that use another configuration.
//
// Each process announces a digest of its configuration on the bus of the shared store. The store contains no
// copy, so that a process that was killed leaves no entry behind.
package replicas

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	topic = "gateway/processes"
	// announceEvery is how often a process announces itself: a thousand processes receive 200 messages
	// a second.
	announceEvery = 5 * time.Second
	// maxMissed is the number of announcements in a row that may be lost or late.
	maxMissed = 4
	// Tolerated is how long processes may use different configurations without a warning: longer than a
	// rolling change takes.
	Tolerated = 10 * time.Minute
	// maxProcesses limits the processes that are held in memory, and maxMessage the bytes of an announcement:
	// other programs may use the store.
	maxProcesses = 1000
	maxMessage   = 1 << 10
)

// A Process is the announcement of a process.
type Process struct {
	ID            string    `json:"id"`   // random
	Name          string    `json:"name"` // for people
	Started       time.Time `json:"started"`
	Configuration string    `json:"configuration"` // digest
	Since         time.Time `json:"since"`         // of the configuration
	Ended         bool      `json:"ended,omitempty"`
}

// Processes are the processes that share a bus. The methods are safe for concurrent use.
type Processes struct {
	bus replica.Bus
	log *slog.Logger

	mu     sync.Mutex // guards the fields below
	self   Process
	rounds uint64 // own announcements that returned: a bus that fails returns no announcement
	others map[string]*other
}

// An other is another process.
type other struct {
	Process
	round  uint64 // of its last announcement
	warned bool
}

// Join announces a process until ctx ends, and returns the processes that it learns of. The returned
// function waits for the end.
func Join(ctx context.Context, bus replica.Bus, self Process, log *slog.Logger) (p *Processes, wait func()) {
	p = &Processes{bus: bus, log: log, self: self, others: map[string]*other{}}
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		p.run(ctx)
	}()
	return p, func() { <-done }
}

func (p *Processes) run(ctx context.Context) {
	stop := func() {}
	defer func() { stop() }()
	ticker := time.NewTicker(announceEvery)
	defer ticker.Stop()
	for subscribed := false; ; {
		if !subscribed {
			end, err := p.bus.Subscribe(ctx, topic, p.receive)
			if err == nil {
				stop, subscribed = end, true
			}
		}
		p.announce(ctx, false)
		p.warn()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.announce(context.WithoutCancel(ctx), true)
			return
		}
	}
}

// announce publishes the process. A lost announcement is repeated by the next one.
func (p *Processes) announce(ctx context.Context, ended bool) {
	p.mu.Lock()
	self := p.self
	p.mu.Unlock()
	self.Ended = ended
	if text, err := json.Marshal(self); err == nil {
		_, _ = p.bus.Publish(ctx, topic, text)
	}
}

func (p *Processes) receive(payload []byte) {
	var from Process
	if len(payload) > maxMessage || json.Unmarshal(payload, &from) != nil || from.ID == "" {
		return // also of a lost message
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if from.ID == p.self.ID {
		p.rounds++
		maps.DeleteFunc(p.others, func(_ string, o *other) bool { return p.rounds-o.round > maxMissed })
		return
	}
	o := p.others[from.ID]
	switch {
	case from.Ended:
		delete(p.others, from.ID)
		return
	case o == nil && len(p.others) >= maxProcesses:
		return
	case o == nil:
		o = &other{}
		p.others[from.ID] = o
	}
	o.warned = o.warned && o.Configuration == from.Configuration
	o.Process, o.round = from, p.rounds
}

// Use announces another configuration of this process.
func (p *Processes) Use(configuration string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.self.Configuration == configuration {
		return
	}
	p.self.Configuration, p.self.Since = configuration, time.Now()
	for _, o := range p.others {
		o.warned = false
	}
}

// Replicas returns the number of processes, and the processes with another configuration. The later of
// two configurations began the difference.
func (p *Processes) Replicas() gateway.Replicas {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := gateway.Replicas{Processes: 1 + len(p.others)}
	for _, o := range p.others {
		if p.differs(o) {
			r.Other = append(r.Other, gateway.Replica{Name: o.Name, Started: o.Started, Since: p.since(o)})
		}
	}
	slices.SortFunc(r.Other, func(a, b gateway.Replica) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Started.Compare(b.Started))
	})
	return r
}

func (p *Processes) differs(o *other) bool { return o.Configuration != p.self.Configuration }

func (p *Processes) since(o *other) time.Time {
	if o.Since.After(p.self.Since) {
		return o.Since
	}
	return p.self.Since
}

// warn logs each difference that lasts, once.
func (p *Processes) warn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, o := range p.others {
		if p.differs(o) && !o.warned && time.Since(p.since(o)) > Tolerated {
			o.warned = true
			names = append(names, o.Name)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		p.log.Warn("gateway: other processes have used another configuration for "+Tolerated.String()+
			": reload or restart them", "processes", names)
	}
}
