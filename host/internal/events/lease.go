package events

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// leaseTime is how long events are kept for a caller that does not poll.
	leaseTime = 5 * time.Minute
	// maxKept and maxKeptBytes limit the events that are kept for a caller. Beyond them, the oldest are dropped,
	// and the server is asked again for them if it has cursors.
	maxKept      = 1000
	maxKeptBytes = 4 << 20
	// pollInterval is how soon a caller should poll again. A poll reads only kept events.
	pollInterval = 5 * time.Second
	// defaultEvents and maxEvents limit the events of a result.
	defaultEvents = 100
	maxEvents     = 1000
)

// A Lease keeps the events that a server pushes for a caller that polls. It ends when the caller has not polled for
// leaseTime.
type Lease struct {
	// ID identifies the lease in cursors. It is random.
	ID string

	polls chan leasePoll
	done  chan struct{}
	kept  []Item // events, and gaps with Truncated
	bytes int
	first uint64  // index of the first kept item
	start *string // cursor of the server before the first kept item
	head  *string // cursor of the server after the last item
	err   error   // that ended the feed
}

type leasePoll struct {
	from  *uint64 // nil: from now
	most  int
	reply chan<- leaseReply // buffered (1)
}

type leaseReply struct {
	result *Result
	known  bool // the lease contains the position
	err    error
}

// NewLease returns a lease. Its owner must call [Lease.Run].
func NewLease() *Lease {
	return &Lease{ID: rand.Text(), polls: make(chan leasePoll), done: make(chan struct{})}
}

// Run keeps the events of a feed until the lease or ctx ends.
func (l *Lease) Run(ctx context.Context, f *Feed, at Request) {
	defer close(l.done)
	flow := f.Start(ctx, at)
	defer flow.Stop()
	idle := time.NewTimer(leaseTime)
	defer idle.Stop()
	in, polls := flow.Items, (<-chan leasePoll)(nil) // polls wait for the first item
	for {
		select {
		case i, more := <-in:
			polls = l.polls
			if !more {
				in, l.err = nil, flow.Err()
				continue
			}
			l.keep(i)
		case p := <-polls:
			idle.Reset(leaseTime)
			p.reply <- l.read(p)
			if l.err != nil {
				return
			}
		case <-idle.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// keep adds an item.
func (l *Lease) keep(i Item) {
	if l.start == nil && len(l.kept) == 0 && l.first == 0 {
		l.start = i.Cursor
	}
	if i.Cursor != nil {
		l.head = i.Cursor
	}
	if i.Event == nil && !i.Truncated {
		return
	}
	l.kept = append(l.kept, i)
	l.bytes += i.size()
	for len(l.kept) > maxKept || l.bytes > maxKeptBytes {
		l.start = l.kept[0].Cursor
		l.bytes -= l.kept[0].size()
		l.kept = l.kept[1:]
		l.first++
	}
}

func (i *Item) size() int {
	if i.Event == nil {
		return 0
	}
	return len(i.Event.Data) + len(i.Event.ID)
}

// read returns the kept events after a position.
func (l *Lease) read(p leasePoll) leaseReply {
	end := l.first + uint64(len(l.kept))
	r := &Result{Events: []Event{}, NextPoll: pollInterval.Milliseconds()}
	at := end
	switch {
	case l.err != nil:
		return leaseReply{err: l.err}
	case p.from != nil && (*p.from < l.first || *p.from > end):
		return leaseReply{}
	case p.from != nil:
		at = *p.from
	}
	for at < end && len(r.Events) < p.most {
		i := &l.kept[at-l.first]
		at++
		if i.Event == nil {
			r.Truncated = true
			continue
		}
		r.Events = append(r.Events, *i.Event)
	}
	r.HasMore = at < end
	c := Cursor{Position: l.head, Lease: l.ID, Index: at}
	if at == l.first && at < end {
		c.Position = l.start
	} else if at < end {
		c.Position = l.kept[at-1-l.first].Cursor
	}
	r.At = c
	return leaseReply{result: r, known: true}
}

// Poll returns the events after an index, at most as many as the caller asks for; nil begins now. ok is false if the
// lease ended or does not contain the index. Poll waits for the first response of the server.
func (l *Lease) Poll(ctx context.Context, from *uint64, most int) (r *Result, ok bool, err error) {
	if most == 0 {
		most = defaultEvents
	}
	reply := make(chan leaseReply, 1)
	select {
	case l.polls <- leasePoll{from, min(most, maxEvents), reply}:
		a := <-reply
		return a.result, a.known || a.err != nil, a.err
	case <-l.done:
		return nil, false, nil
	case <-ctx.Done():
		return nil, true, mcp.Errorf(mcp.CodeInternalError, "the server has not accepted the subscription in time")
	}
}
