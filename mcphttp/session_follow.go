package mcphttp

import (
	"context"
	encoding "encoding/base32"
	stdjson "encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A client may resume the stream of a call at a process that does not run the call. That process
// follows the stream: it reads the stored events, and asks the process that runs the call for word
// of later events. The response, always the last event, marks the end. Nothing is sent or stored for
// a call that no other process follows.

const (
	// askPause is the time between two questions of a follower, which also repair lost answers.
	askPause = 4 * time.Second
	// A process counts as gone when it has not answered goneAsked questions, the first of them
	// goneAfter ago. The count keeps the pauses of a follower from counting as silence.
	goneAsked, goneAfter = 4, 15 * time.Second
	// followedFor is how long a process reports the events of a stream after a question.
	followedFor = 3 * askPause
	// resumePause is when a client should resume a stream that ended before the response.
	resumePause = 2 * time.Second
	// maxFollows limits the streams that a process follows. Each costs a goroutine and a connection.
	maxFollows, maxFollowsOfCaller = 4096, 64
	// maxAnswers limits the answers that wait for the bus. Followers ask again for a dropped answer.
	maxAnswers = 4096
	// maxNamedIDs limits the request ids in the name of a stream, in bytes. Each id fits. The ids of a
	// large batch are left out.
	maxNamedIDs   = 512
	maxStreamName = streamNameLen + nameLen + maxNamedIDs*8/5 + 1
	// maxLost limits the streams without their response that a session keeps while the store fails. Older
	// streams end without an error.
	maxLost = 16
)

var nameEncoding = encoding.StdEncoding.WithPadding(encoding.NoPadding)

// callSuffix returns the part of a stream's name by which other processes follow a call: the name of
// this process and the ids of the requests. A client that resumes returns the name, so that the ids
// are known although the process is gone. The suffix is empty without a bus.
func (t *sessions) callSuffix(m *jsonrpc.Message) string {
	if t.shared.bus == nil {
		return ""
	}
	var ids []byte
	for _, request := range slices.Concat(m.Batch, []*jsonrpc.Message{m}) {
		if request.Kind() == jsonrpc.Request {
			ids = append(append(ids, ','), request.ID.String()...)
		}
	}
	if len(ids) <= 1 || len(ids) > maxNamedIDs {
		return t.shared.process
	}
	return t.shared.process + nameEncoding.EncodeToString(ids[1:])
}

// lostResponse returns errors in place of the responses to the requests of a stream: their process is
// gone, or events are not stored. It returns nil if the name of the stream contains no ids.
func lostResponse(name string, isGone bool) []byte {
	why := "the process that ran the request did not store all events"
	if isGone {
		why = "the process that ran the request is gone"
	}
	failed := &jsonrpc.Error{Code: mcp.CodeInternalError, Message: why + "; the request may have run",
		Data: stdjson.RawMessage(`{"mayHaveRun":true}`)}
	var ids []jsonrpc.ID
	list, err := nameEncoding.DecodeString(name[min(len(name), streamNameLen+nameLen):])
	if err != nil || stdjson.Unmarshal([]byte("["+string(list)+"]"), &ids) != nil || len(ids) == 0 {
		return nil
	}
	all := &jsonrpc.Message{}
	for _, id := range ids {
		all.Batch = append(all.Batch, &jsonrpc.Message{ID: id, Error: failed})
	}
	if len(ids) == 1 {
		all = all.Batch[0]
	}
	return jsonrpc.Append(nil, all)
}

// isResponse reports whether an event is the last event of a call.
func isResponse(data []byte) bool {
	m, err := jsonrpc.Decode(data)
	return err == nil && (m.Kind() == jsonrpc.Response || m.Kind() == jsonrpc.Batch)
}

// A streamReport is a question of a process about a stream of another process, or the answer.
type streamReport struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"` // the process that asks; empty in an answer
	Last int64  `json:"last,omitempty"` // the number of the last stored event
	Over bool   `json:"over,omitempty"` // the stream ended, or this process does not know it
	Lost bool   `json:"lost,omitempty"` // the stream ended with a response that is not stored
}

// An answer about a stream of this process, which another process follows.
type answer struct {
	topic, session, principal, name string
	stream                          *sessionStream // nil if the stream is unknown
}

// followers are the processes that follow a stream. Nil followers are none.
type followers struct {
	sessions *sessions

	mu    sync.Mutex // guards the field below
	until map[answer]time.Time
}

// changed tells all followers about a new event or the end of the stream. It does not wait.
func (f *followers) changed() {
	for _, a := range f.current() {
		f.sessions.reply(a)
	}
}

func (f *followers) current() []answer {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.until, func(_ answer, until time.Time) bool { return time.Now().After(until) })
	return slices.Collect(maps.Keys(f.until))
}

// receiveReport handles a question or an answer about a stream of a session, without waiting. The
// session is nil if this process does not know it.
func (t *sessions) receiveReport(s *session, c *carried) {
	state := c.Stream
	if s == nil && state.From == "" {
		return
	}
	var stream *sessionStream
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		stream = s.find(state.Name)
		if f := s.following[state.Name]; f != nil && state.From == "" {
			f.known = followed{last: max(f.known.last, state.Last), ended: state.Over, isLost: state.Lost}
			peer.Wake(f.wake)
		}
	}
	if !isProcess(state.From) {
		return
	}
	a := answer{topicOf(state.From), c.Session, c.Principal, state.Name, stream}
	if stream != nil {
		stream.followers.CompareAndSwap(nil, &followers{sessions: t, until: map[answer]time.Time{}})
		f := stream.followers.Load()
		f.mu.Lock()
		f.until[a] = time.Now().Add(followedFor)
		f.mu.Unlock()
	}
	t.reply(a)
}

// reply sends an answer soon.
func (t *sessions) reply(a answer) {
	x := &t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended || len(x.answers) == maxAnswers {
		return
	}
	x.answers[a] = true
	if x.answering == nil {
		x.answering = time.AfterFunc(0, t.sendAnswers)
	}
}

// sendAnswers sends the answers that wait. Events that are stored meanwhile share an answer. While the
// bus fails, it drops the answers.
func (t *sessions) sendAnswers() {
	x := &t.shared
	x.sending.Lock()
	defer x.sending.Unlock()
	for {
		var a answer
		x.mu.Lock()
		for a = range x.answers {
			break
		}
		delete(x.answers, a)
		if a.topic == "" || x.ended {
			x.answering = nil
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		state := streamReport{Name: a.name, Over: true}
		if a.stream != nil {
			state.Over = a.stream.done.Load() // before Last, which includes the response then
			state.Last, state.Lost = a.stream.stored.Load(), a.stream.lost.Load()
		}
		_, err := t.send(a.topic, &carried{Session: a.session, Principal: a.principal, Stream: &state})
		if err != nil {
			x.log.error(context.Background(), "mcphttp: state of a stream not sent to another process", err)
			x.mu.Lock()
			clear(x.answers) // each would wait for the bus
			x.mu.Unlock()
		}
	}
}

func (t *sessions) send(topic string, c *carried) (receivers int, err error) {
	data, err := stdjson.Marshal(c)
	if err == nil {
		receivers, err = t.shared.publish(topic, data)
	}
	return receivers, err
}

// A follower is a GET that reads a stream of another process: of a call, or the standalone stream until
// that process has stored its last event.
type follower struct {
	handler *Handler
	session *session
	conn    *eventStream
	key     StreamKey
	process string        // has the stream
	n       int64         // of the last event that was sent
	isOver  bool          // the client has the response or an error, or the call ended without a response
	wake    chan struct{} // buffered(1): an answer came, another GET replaced this one, or the session ended

	known followed // guarded by the lock of the session
}

// followed is the state of a stream, as its process reported it.
type followed struct {
	last   int64     // the number of the last stored event
	ended  bool      // the stream ended, or its process does not know it
	isLost bool      // it ended with a response that is not stored
	asked  int       // questions since the last answer
	since  time.Time // of the first of these questions
}

func (k *followed) isGone() bool { return k.asked >= goneAsked && time.Since(k.since) >= goneAfter }

// follow replays the stream of a call that does not run here, and stays connected until the call is
// over. Only a stored stream is followed, so a client cannot choose the process that is asked.
func (h *Handler) follow(r *http.Request, s *session, conn *eventStream, name string, n int64) *refusal {
	if no := h.follows.acquire(s.caller, 1); no != nil {
		return no
	}
	defer h.follows.release(s.caller, 1)
	f := h.newFollower(s, conn, name, n)
	if err := f.read(r.Context()); err != nil {
		return h.afterReplay(conn, err)
	}
	if h.sessions.shared.bus == nil || len(name) == streamNameLen {
		return nil
	}
	f.follow(r.Context(), name[streamNameLen:streamNameLen+nameLen])
	if !f.isOver {
		_ = conn.append(sse.Event{Retry: resumePause, HasRetry: true}) // fails only without a connection
	}
	return nil
}

func (h *Handler) newFollower(s *session, conn *eventStream, name string, n int64) *follower {
	return &follower{handler: h, session: s, conn: conn, n: n, wake: make(chan struct{}, 1),
		key: StreamKey{Session: s.id, Principal: s.digest, Stream: name}}
}

// follow sends later events of a stream of another process.
func (f *follower) follow(ctx context.Context, process string) {
	x := &f.handler.sessions.shared
	f.process, f.known.ended = process, process == x.process // a call of this process is over
	defer f.start()()
	if err := f.run(ctx); err != nil && !f.conn.isOver() && ctx.Err() == nil {
		x.log.error(ctx, "mcphttp: stream of another process not followed", err)
	}
}

// run sends the events of the stream until it is over or the client is gone. An error is that of the
// store or of the bus.
func (f *follower) run(ctx context.Context) error {
	ticker := time.NewTicker(askPause)
	defer ticker.Stop()
	for isDue := true; !f.isOver && !f.conn.isOver() && ctx.Err() == nil; {
		known, goesOn := f.state()
		switch {
		case !goesOn:
			return nil
		case known.ended || known.isGone():
			return f.finish(ctx, &known)
		case known.last > f.n:
			if err := f.read(ctx); errors.Is(err, ErrEventGap) {
				return f.fail(false)
			} else if err != nil || f.isOver {
				return err
			}
		}
		if isDue {
			receivers, err := f.ask()
			if err != nil || receivers == 0 && f.isStandalone() {
				return err
			}
		}
		isDue = false
		select {
		case <-f.wake:
		case <-ticker.C:
			isDue = true
		case <-f.conn.over():
		case <-ctx.Done():
		}
	}
	return nil
}

// ask sends a question to the process of the stream.
func (f *follower) ask() (receivers int, err error) {
	f.session.mu.Lock()
	if f.known.asked++; f.known.asked == 1 {
		f.known.since = time.Now()
	}
	f.session.mu.Unlock()
	t := f.handler.sessions
	return t.send(topicOf(f.process), &carried{Session: f.session.shared.key, Principal: f.session.digest,
		Stream: &streamReport{Name: f.key.Stream, From: t.shared.process}})
}

// read sends the events that are stored and were not sent.
func (f *follower) read(ctx context.Context) error {
	n, data, err := replay(f.handler.sessions.events.After(ctx, f.key, f.n), f.key.Stream, f.conn, f.n)
	f.n, f.isOver = n, isResponse(data)
	return err
}

// finish sends the last events of a stream that is over, and then an error if a response is due.
func (f *follower) finish(ctx context.Context, known *followed) error {
	err := f.read(ctx)
	isGap := errors.Is(err, ErrEventGap)
	if f.isOver || err != nil && !isGap {
		return err
	}
	f.isOver = true // unless an error follows, the call has no response, as after a cancellation
	for data, err := range f.handler.sessions.events.After(ctx, f.key, f.n-1) {
		if err == nil && isResponse(data) {
			return nil // the client received the response before
		}
	}
	if known.isGone() || known.isLost || isGap && known.last != f.n {
		return f.fail(known.isGone())
	}
	return nil
}

// fail sends an error in place of the response.
func (f *follower) fail(isGone bool) error {
	f.isOver = true
	f.session.shared.stale.Add(1) // events are deleted with their session
	if f.isStandalone() || !f.handler.sessions.refresh(f.session) {
		return nil // it continues here, or the session ended
	}
	if data := lostResponse(f.key.Stream, isGone); data != nil {
		return f.conn.append(sse.Event{Data: data})
	}
	return nil
}

// state returns the known state of the stream, and whether to follow it any longer.
func (f *follower) state() (known followed, goesOn bool) {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	return f.known, !f.session.ended && f.session.following[f.key.Stream] == f
}

func (f *follower) isStandalone() bool { return f.key.Stream[0] == standaloneStream }

// start registers the follower, in place of another follower of the stream: only a client that found
// its connection broken resumes the stream again.
func (f *follower) start() (stop func()) {
	s, name := f.session, f.key.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.following[name]; before != nil {
		before.conn.interrupt()
		peer.Wake(before.wake)
	}
	stream := s.find(name) // a call of this process that is over, or nil
	f.known.isLost = stream != nil && stream.lost.Load()
	if s.following == nil {
		s.following = map[string]*follower{}
	}
	s.following[name] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.following[name] == f {
			delete(s.following, name)
		}
	}
}
