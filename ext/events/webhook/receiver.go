package webhook

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

const (
	// maxUnbound limits the secrets that are tried for a subscription whose ID is unknown. Anybody
	// can cause such a search.
	maxUnbound = 64
	// maxSeen is the number of messages of a subscription that are remembered, so that their
	// repetitions are recognized.
	maxSeen = 1024
	// oldSecret is how long a receiver accepts the secret that was replaced: as long as senders sign
	// with it, and deliveries travel.
	oldSecret = secretGrace + Tolerance
)

var (
	// ErrRefuse is returned by the function of a [Route] that does not want a message, and does not
	// want it again.
	ErrRefuse = errors.New("webhook: the message is refused")
	// ErrTooMany means that a [Receiver] holds too many secrets whose subscriptions are not known.
	ErrTooMany = errors.New("webhook: too many secrets without a subscription: must be bound or closed first")
)

// ReceiverOptions configures a [Receiver]. The zero value is right for most programs.
type ReceiverOptions struct {
	// Logger receives the errors of functions that handle messages. Default: slog.Default().
	Logger *slog.Logger
}

// A Receiver is the endpoint of webhooks: an http.Handler for one or several URLs. It verifies the
// signature of each message, answers challenges, recognizes repetitions, and passes each message to
// the function of its subscription. Messages of at most 256 KiB are read; the [http.Server] must
// limit the time for it. All methods are safe for concurrent use.
//
// Spec: SEP-3415, Webhook event delivery.
type Receiver struct {
	log *slog.Logger

	mu      sync.Mutex          // guards the fields below, and the routes
	bound   map[string][]*Route // by the ID of the subscription; servers may choose the same
	unbound []*Route
}

// NewReceiver returns a Receiver. opts may be nil.
func NewReceiver(opts *ReceiverOptions) *Receiver {
	o := cmp.Or(opts, new(ReceiverOptions))
	return &Receiver{log: cmp.Or(o.Logger, slog.Default()), bound: map[string][]*Route{}}
}

// A Handler accepts a message. When it returns nil, the sender does not send the message again, so
// the message must have been stored or handled. After [ErrRefuse] the message is not sent again
// either; after any other error it is. Messages of a subscription arrive in order, but a Handler may
// be called concurrently if the sender lost patience.
type Handler func(ctx context.Context, m *Message) error

// A Route is the part of a [Receiver] for a subscription.
type Route struct {
	receiver *Receiver
	handle   Handler

	// The mutex of the receiver guards the fields below.
	id      string // of the subscription; empty until it is known
	closed  bool
	secrets []acceptedSecret
	seen    map[string]bool // false while the message is handled
	order   []string        // the messages that were handled, the oldest first
}

type acceptedSecret struct {
	Secret
	until time.Time // zero for the latest secret
}

// Add returns a Route for the subscription whose messages are signed with a secret. It must be
// called before the secret is sent to the server, which sends a challenge before it responds. The
// first message with a signature of the secret tells which subscription it is; see also
// [Route.Bind]. The error is [ErrTooMany] for more than 64 subscriptions that are not known.
func (r *Receiver) Add(secret Secret, handle Handler) (*Route, error) {
	t := &Route{receiver: r, handle: handle, secrets: []acceptedSecret{{Secret: secret}}, seen: map[string]bool{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unbound) >= maxUnbound {
		return nil, ErrTooMany
	}
	r.unbound = append(r.unbound, t)
	return t, nil
}

// Bind sets the ID of the subscription, which the response to events/subscribe contains.
func (t *Route) Bind(id string) {
	t.receiver.mu.Lock()
	defer t.receiver.mu.Unlock()
	t.bind(id)
}

// isUnbound reports whether the subscription is not known yet.
func (t *Route) isUnbound() bool {
	t.receiver.mu.Lock()
	defer t.receiver.mu.Unlock()
	return t.id == ""
}

// bind sets the ID. The caller holds the lock.
func (t *Route) bind(id string) {
	if t.id == id || t.closed {
		return
	}
	t.remove()
	t.id = id
	t.receiver.bound[id] = append(t.receiver.bound[id], t)
}

// remove removes the route. The caller holds the lock.
func (t *Route) remove() {
	r := t.receiver
	isSame := func(other *Route) bool { return other == t }
	r.unbound = slices.DeleteFunc(r.unbound, isSame)
	if r.bound[t.id] = slices.DeleteFunc(r.bound[t.id], isSame); len(r.bound[t.id]) == 0 {
		delete(r.bound, t.id)
	}
}

// Rotate replaces the secret. It must be called before the new secret is sent to the server. The old
// secret is accepted for 10 more minutes.
func (t *Route) Rotate(secret Secret) {
	now := time.Now()
	t.receiver.mu.Lock()
	defer t.receiver.mu.Unlock()
	if t.secrets[0].Secret == secret {
		return
	}
	t.secrets[0].until = now.Add(oldSecret)
	old := t.secrets[:min(len(t.secrets), maxSecrets-1)]
	t.secrets = append([]acceptedSecret{{Secret: secret}}, old...)
}

// Close makes the Receiver refuse further messages of the subscription.
func (t *Route) Close() {
	t.receiver.mu.Lock()
	defer t.receiver.mu.Unlock()
	t.remove()
	t.closed = true
}

// accepted returns the secrets that are accepted now. The caller holds the lock.
func (t *Route) accepted(now time.Time) []Secret {
	var all []Secret
	for _, s := range t.secrets {
		if s.until.IsZero() || s.until.After(now) {
			all = append(all, s.Secret)
		}
	}
	return all
}

// ServeHTTP responds with 200 to a message that was accepted, with 410 to a message that the
// [Handler] refused, with 401 to a message without a valid signature, and with 503 to a message that
// the sender should send again.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed)
		return
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType)
		return
	}
	m, err := parseHeader(req.Header)
	if err == nil {
		err = m.checkTime(time.Now())
	}
	id := req.Header.Get(headerSubscription)
	if err != nil || !isID(id) {
		fail(w, http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		fail(w, http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest)
		return
	}
	t, status := r.route(m, id, body)
	if t == nil {
		fail(w, status)
		return
	}
	r.receive(w, req, t, m.id, id, body)
}

func fail(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }

// route returns the route of a message with a valid signature, or the status for a message without.
func (r *Receiver) route(m message, id string, body []byte) (*Route, int) {
	now := time.Now()
	r.mu.Lock()
	candidates, refusal := slices.Concat(r.bound[id], r.unbound), http.StatusServiceUnavailable
	if len(r.bound[id]) > 0 {
		refusal = http.StatusUnauthorized
	}
	secrets := make([][]Secret, len(candidates))
	for i, t := range candidates {
		secrets[i] = t.accepted(now)
	}
	r.mu.Unlock()
	for i, t := range candidates {
		if m.isSigned(body, secrets[i]...) {
			return t, 0
		}
	}
	return nil, refusal
}

// receive responds to a message with a valid signature.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request, t *Route, messageID, id string, body []byte) {
	m, err := parseMessage(messageID, body)
	if err != nil {
		fail(w, http.StatusBadRequest)
		return
	}
	m.Subscription = id
	r.mu.Lock()
	if t.id == "" {
		t.bind(id)
	}
	isKnown := t.id == id
	done, isRepeated := t.seen[messageID]
	if isKnown && !isRepeated && m.challenge == "" {
		t.seen[messageID] = false
	}
	r.mu.Unlock()
	switch {
	case !isKnown: // another message was faster
		fail(w, http.StatusServiceUnavailable)
	case m.challenge != "":
		answer(w, m.challenge)
	case isRepeated && !done: // it is being handled
		fail(w, http.StatusServiceUnavailable)
	case isRepeated:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(r.call(req.Context(), t, m))
	}
}

// call passes a message to its handler. It returns the status of the response.
func (r *Receiver) call(ctx context.Context, t *Route, m *Message) int {
	isDone := false
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !isDone {
			delete(t.seen, m.ID)
			return
		}
		t.seen[m.ID] = true
		if t.order = append(t.order, m.ID); len(t.order) > maxSeen {
			delete(t.seen, t.order[0])
			t.order = t.order[1:]
		}
	}()
	err := t.handle(ctx, m)
	isDone = err == nil || errors.Is(err, ErrRefuse)
	switch {
	case err == nil:
		return http.StatusOK
	case isDone:
		return http.StatusGone
	}
	r.log.ErrorContext(ctx, "webhook: a message was not handled", "subscription", m.Subscription, "error", err)
	return http.StatusServiceUnavailable
}

// answer confirms that deliveries are wanted.
func answer(w http.ResponseWriter, challenge string) {
	body, err := jsonv2.Marshal(struct {
		Challenge string `json:"challenge"`
	}{challenge})
	if err != nil {
		fail(w, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
