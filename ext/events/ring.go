package events

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxRingBytes limits the payloads that an event type keeps in memory.
const maxRingBytes = 16 << 20

// A ring holds the latest emitted occurrences of an event type. Its cursors count the occurrences
// since the ring was made, and name the ring: a cursor of another process is recognized.
//
// Spec: SEP-3415, Emit-only event types.
type ring[Payload any] struct {
	epoch     string
	maxEvents int
	maxAge    time.Duration

	mu    sync.Mutex // guards the fields below
	first int64      // the number of the oldest occurrence
	all   []emitted[Payload]
	bytes int
}

// An emitted is an occurrence with its encoding for subscriptions that do not transform it.
type emitted[Payload any] struct {
	occurrence Occurrence[Payload]
	delivered  *Delivered
	at         time.Time // of Emit
}

func newRing[Payload any](maxEvents int, maxAge time.Duration) *ring[Payload] {
	const epochLength = 8 // enough to distinguish processes
	return &ring[Payload]{epoch: rand.Text()[:epochLength], maxEvents: maxEvents, maxAge: maxAge}
}

func (r *ring[Payload]) add(o Occurrence[Payload], d *Delivered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.all = append(r.all, emitted[Payload]{o, d, now})
	r.bytes += len(d.Data)
	expired := 0
	for i, e := range r.all[:len(r.all)-1] { // the latest stays, whatever its size
		if len(r.all)-i <= r.maxEvents && r.bytes <= maxRingBytes && now.Sub(e.at) <= r.maxAge {
			break
		}
		r.bytes -= len(e.delivered.Data)
		expired++
	}
	r.first += int64(expired)
	r.all = r.all[expired:]
	if free := cap(r.all) - len(r.all); expired > 0 && free == 0 {
		r.all = slices.Clone(r.all) // lets go of the expired; readers may use the old array
	}
}

// snapshot returns the occurrences that are not too old, which must not be changed, and the number of
// the first.
func (r *ring[Payload]) snapshot() (all []emitted[Payload], first int64) {
	r.mu.Lock()
	all, first = r.all, r.first
	r.mu.Unlock()
	expired := 0
	for expired < len(all) && time.Since(all[expired].at) > r.maxAge {
		expired++
	}
	return all[expired:], first + int64(expired)
}

func (r *ring[Payload]) cursor(n int64) string { return r.epoch + "." + strconv.FormatInt(n, 36) }

// parse returns the number in a cursor of this ring.
func (r *ring[Payload]) parse(cursor string) (n int64, ok bool) {
	epoch, number, found := strings.Cut(cursor, ".")
	if !found || epoch != r.epoch {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 36, 64)
	return n, err == nil && n >= 0 && r.cursor(n) == cursor
}

// read returns the occurrences after a position that match. A cursor of another process, or that is
// too old, starts at the oldest occurrence.
func (r *ring[Payload]) read(ctx context.Context, at Position,
	match func(context.Context, Occurrence[Payload], *Delivered) (*Delivered, error)) (*batch, error) {
	all, first := r.snapshot()
	end := first + int64(len(all))
	if at.Cursor == "" {
		return &batch{cursor: r.cursor(end)}, nil
	}
	next, ok := r.parse(at.Cursor)
	out := &batch{truncated: !ok || next < first || next > end}
	if out.truncated {
		next = first
	}
	for next < end && all[next-first].occurrence.Time.Before(at.Since) {
		next++
		out.truncated = true
	}
	out.start = r.cursor(next)
	for ; next < end && !out.more; next++ {
		e := all[next-first]
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		d, err := match(ctx, e.occurrence, e.delivered)
		switch {
		case err != nil:
			return nil, fmt.Errorf("occurrence %q: %w", e.delivered.ID, err)
		case d == nil:
			continue
		}
		own := *d
		own.Cursor = r.cursor(next + 1)
		out.events = append(out.events, &own)
		out.more = len(out.events) == at.Max && next+1 < end
	}
	out.cursor = r.cursor(next)
	return out, nil
}
