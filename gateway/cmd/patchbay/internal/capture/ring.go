package capture

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures a [Ring]. The zero value keeps bodies while a [Watcher] is open.
type Options struct {
	// Always keeps the frames also without a Watcher.
	Always bool
}

// A Ring holds the latest exchanges and frames. It is safe for concurrent use.
type Ring struct {
	mask     *masker
	keeping  atomic.Int64 // readers of frames
	causes   causes
	maxSlots int // maxSummaries, and less in tests
	maxBytes int // maxBodies, and less in tests
	log      atomic.Pointer[func(Line)]
	buffers  sync.Pool // of *[]byte: texts of frames before masking

	mu        sync.Mutex          // guards the fields below
	last      uint64              // id of the newest exchange
	slots     []*[chunkSlots]slot // by id modulo maxSlots
	known     [64]*about          // the latest, by hash
	processes []uint64            // ids of the newest processes, at most maxProcesses
	order     []uint64            // the exchange of each frame that is held, the oldest first
	size      int                 // of the frames that are held
	watchers  map[*Watcher]struct{}
}

// New returns an empty ring. The options may be nil.
func New(o *Options) *Ring {
	r := &Ring{maxSlots: maxSummaries, maxBytes: maxBodies,
		watchers: map[*Watcher]struct{}{}, mask: &masker{}}
	if o != nil && o.Always {
		r.keeping.Add(1)
	}
	return r
}

// SetMask sets the function that replaces the secrets in a text, such as the method Mask of an
// operator. It must be called before the first exchange, unless no secrets are known. mask must be
// safe for concurrent use.
func (r *Ring) SetMask(mask func(text string) string) { r.mask.secrets.Store(&mask) }

// SetLog sets a function that receives the lines that servers print and log, without known secrets.
// It must return at once, and be safe for concurrent use.
func (r *Ring) SetLog(log func(Line)) { r.log.Store(&log) }

// logs passes a line on, if somebody receives lines.
func (r *Ring) logs(server string, kind Kind, level string, text []byte) {
	if log := r.log.Load(); log != nil {
		(*log)(Line{server, kind, level, r.mask.frame(text, nil)})
	}
}

// Keeps reports whether the ring stores the texts of frames now.
func (r *Ring) Keeps() bool { return r.keeping.Load() > 0 }

// begin adds an exchange, and returns its id. It sets Queued unless it is set.
func (r *Ring) begin(x *Exchange) uint64 {
	x.Target, x.Name = r.mask.target(x.Target), r.mask.target(x.Name)
	x.Method, x.Caller = bounded(x.Method, maxText), bounded(x.Caller, maxText)
	if x.Queued.IsZero() {
		x.Queued = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	x.ID = r.last
	if r.slot(x.ID)/chunkSlots == len(r.slots) {
		r.slots = append(r.slots, new([chunkSlots]slot))
	}
	s := r.find(x.ID)
	if s.held != nil {
		r.forget(s.held)
	}
	*s = r.newSlot(x)
	if x.Hop == Process {
		r.processes = append(r.processes[max(len(r.processes)-maxProcesses+1, 0):], x.ID)
	}
	r.notify(x.ID)
	return x.ID
}

func (r *Ring) slot(id uint64) int { return int((id - 1) % uint64(r.maxSlots)) } //nolint:gosec // less than maxSlots

// oldest returns the id of the oldest exchange that is held, or 1. The caller holds the mutex.
func (r *Ring) oldest() uint64 {
	most := uint64(r.maxSlots) //nolint:gosec // positive
	return max(r.last, most) - most + 1
}

// find returns an exchange that is held, or nil. The caller holds the mutex.
func (r *Ring) find(id uint64) *slot {
	if id > r.last || id < r.oldest() {
		return nil
	}
	i := r.slot(id)
	return &r.slots[i/chunkSlots][i%chunkSlots]
}

// update changes an exchange, unless the ring no longer holds it. change must not block.
func (r *Ring) update(id uint64, change func(x *slot)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.find(id); x != nil {
		change(x)
		r.notify(id)
	}
}

// end ends an exchange with a status. An exchange that ended already keeps its status.
func (r *Ring) end(id uint64, status string) {
	now := time.Now()
	r.update(id, func(x *slot) { x.end(status, now) })
}

// count counts a frame whose text is not kept.
func (r *Ring) count(id uint64, size int) { r.update(id, func(x *slot) { x.count(size) }) }

// add adds a frame with its text to an exchange, and sets Size and Time unless they are set. The values
// of members whose names are secret are hidden. Without a reader, add only counts.
func (r *Ring) add(id uint64, f Frame, text []byte, secret names) {
	f.Size = cmp.Or(f.Size, len(text))
	if !r.Keeps() {
		r.count(id, f.Size)
		return
	}
	if f.Text = r.mask.frame(text, secret); f.Time.IsZero() {
		f.Time = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.find(id)
	if x == nil {
		return
	}
	f.before = int(x.Frames)
	x.count(f.Size)
	if x.held == nil {
		x.held = &held{}
		x.held.frames = x.held.first[:0]
	}
	x.held.frames = append(x.held.frames, f)
	x.held.size += len(f.Text) + frameCost
	r.order = append(r.order, id)
	r.size += len(f.Text) + frameCost
	for r.size > r.maxBytes {
		r.dropFirst()
	}
	r.notify(id)
}

// write adds a frame. The function text appends the text of the frame to a reused buffer.
func (r *Ring) write(id uint64, f Frame, secret names, text func(to []byte) []byte) {
	b, _ := r.buffers.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	*b = text((*b)[:0])
	r.add(id, f, *b, secret)
	if cap(*b) <= maxBuffer {
		r.buffers.Put(b)
	}
}

// dropFirst drops the oldest frame.
func (r *Ring) dropFirst() {
	x := r.find(r.order[0])
	r.order = r.order[1:] // append copies the rest in time
	if x == nil {
		return // the exchange is no longer held
	}
	h := x.held
	size := len(h.frames[0].Text) + frameCost
	r.size, h.size, h.frames[0] = r.size-size, h.size-size, Frame{}
	if h.frames = h.frames[1:]; len(h.frames) == 0 {
		x.held = nil
	}
}

// forget drops the frames of an exchange whose slot is used again.
func (r *Ring) forget(old *held) {
	r.size -= old.size
	for len(r.order) > 0 && r.order[0] < r.oldest() {
		r.order = r.order[1:]
	}
}

// Get returns an exchange and the frames of it that are held.
func (r *Ring) Get(id uint64) (x Exchange, frames []Frame, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.find(id)
	if held == nil {
		return Exchange{}, nil, false
	}
	return held.exchange(id), slices.Clone(held.frames()), true
}

// Oldest returns when the oldest exchange that is held was queued.
func (r *Ring) Oldest() (queued time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.find(r.oldest()); x != nil {
		queued = x.Queued
	}
	return queued
}

// A copied exchange does not change with the ring.
type copied struct {
	Exchange
	frames []Frame
}

// Stderr returns the times of the last n lines of standard error that match a query, in order. It reads the
// last n frames of the newest processes, and no other exchanges.
func (r *Ring) Stderr(q *Query, n int) (times []time.Time) {
	copies := make([]copied, 0, maxProcesses)
	r.mu.Lock()
	for _, id := range r.processes {
		if x := r.find(id); x != nil {
			frames := x.frames()
			copies = append(copies, copied{x.exchange(id), slices.Clone(frames[max(len(frames)-n, 0):])})
		}
	}
	r.mu.Unlock()
	for i := range copies {
		c := &copies[i]
		for j := range c.frames {
			if c.frames[j].Kind == Stderr && q.matches(&c.Exchange, c.frames[j:j+1]) {
				times = append(times, c.frames[j].Time)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[max(len(times)-n, 0):]
}

// Find returns at most n exchanges that match a query, the newest first, with ids below before;
// zero means all. q may be nil.
func (r *Ring) Find(q *Query, before uint64, n int) []Exchange {
	const chunk = 1000 // exchanges that are copied while the ring is locked: less than a millisecond
	var found []Exchange
	for id, more := before, true; more && len(found) < n; {
		var copies []copied
		r.mu.Lock()
		if id == 0 || id > r.last {
			id = r.last + 1
		}
		first := r.oldest()
		for ; id > first && len(copies) < chunk; id-- {
			x := r.find(id - 1)
			c := copied{Exchange: x.exchange(id - 1)}
			if q.readsFrames() {
				c.frames = slices.Clone(x.frames())
			}
			copies = append(copies, c)
		}
		more = id > first
		r.mu.Unlock()
		for i := range copies {
			if len(found) < n && q.matches(&copies[i].Exchange, copies[i].frames) {
				found = append(found, copies[i].Exchange)
			}
		}
	}
	return found
}

// A Watcher receives the ids of exchanges that are new or changed. While it is open, the ring keeps
// the texts of frames. Close it.
type Watcher struct {
	ring    *Ring
	wake    chan struct{} // holds a token while there is something to read
	closing sync.Once
	most    int                 // capacity of changed
	changed map[uint64]struct{} // guarded by the mutex of the ring
	reload  bool                // ids were lost; guarded by the mutex of the ring
	lost    uint64              // changes whose ids were lost; guarded by the mutex of the ring
}

// maxChanged limits the ids that a Watcher holds: a page shows at most 500 rows, so a reader with
// more changes must read all of them again.
const maxChanged = 1000

// Watch returns a Watcher of all later changes.
func (r *Ring) Watch() *Watcher { return r.watch(maxChanged) }

func (r *Ring) watch(most int) *Watcher {
	w := &Watcher{ring: r, wake: make(chan struct{}, 1), most: most, changed: map[uint64]struct{}{}}
	r.keeping.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[w] = struct{}{}
	return w
}

// notify reports a change to all watchers. The caller holds the mutex.
func (r *Ring) notify(id uint64) {
	for w := range r.watchers {
		if len(w.changed) >= w.most {
			w.lost += uint64(len(w.changed))
			clear(w.changed)
			w.reload = true
		}
		if w.reload {
			w.lost++
		} else {
			w.changed[id] = struct{}{}
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Next waits for a change, and returns the ids of the changed exchanges in order. reload reports
// that the reader was too slow, so that ids are missing. The error is the cause of the end of ctx.
func (w *Watcher) Next(ctx context.Context) (ids []uint64, reload bool, err error) {
	select {
	case <-w.wake:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	w.ring.mu.Lock()
	defer w.ring.mu.Unlock()
	for id := range w.changed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	reload, w.reload = w.reload, false
	clear(w.changed)
	return ids, reload, nil
}

// Lost returns how many changes were lost since the last call.
func (w *Watcher) Lost() (lost uint64) {
	w.ring.mu.Lock()
	defer w.ring.mu.Unlock()
	lost, w.lost = w.lost, 0
	return lost
}

// Close ends the watching. The frames that are held stay.
func (w *Watcher) Close() {
	w.closing.Do(func() {
		w.ring.keeping.Add(-1)
		w.ring.mu.Lock()
		defer w.ring.mu.Unlock()
		delete(w.ring.watchers, w)
	})
}
