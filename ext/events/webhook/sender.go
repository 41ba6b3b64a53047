package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Defaults of [SenderOptions].
const (
	defaultTTL          = 30 * time.Minute
	defaultMaxTTL       = time.Hour
	defaultMinTTL       = time.Minute
	defaultTimeout      = 5 * time.Second // common for webhooks; receivers should respond at once
	defaultMax          = 10_000          // a goroutine and a few kilobytes each
	defaultPerPrincipal = 100
)

const (
	// maxArguments limits the arguments of a subscription, in bytes, which are stored and compared.
	maxArguments = 64 << 10
	// maxDetails limits the details of a subscription, in bytes, which are stored with it.
	maxDetails = 32 << 10
	// secretGrace is how long a replaced secret still signs. The client that replaced it needs
	// only seconds to tell its receiver.
	secretGrace = 5 * time.Minute
	// idleConnection is how long a connection to an endpoint waits for the next event.
	idleConnection = time.Minute
	// closeTimeout bounds the writes of Close.
	closeTimeout = 5 * time.Second
)

// SenderOptions configures a [Sender]. The zero value is right for servers whose clients subscribe
// again after a restart.
type SenderOptions struct {
	// Store keeps the subscriptions. Default: [NewMemory].
	Store Store
	// Fetcher sends the deliveries. Its options decide which addresses may be called besides
	// public addresses; AllowedHosts names hosts within a company, and InsecureAnyAddress allows
	// every address. Default: an [oauth.Fetcher] without options.
	Fetcher *oauth.Fetcher
	// TTL is the lifetime of a subscription whose client suggests none. Default: 30 minutes.
	TTL time.Duration
	// MinTTL and MaxTTL bound the lifetime that a client suggests. A longer MaxTTL needs a durable
	// store, since the server must keep a subscription for as long as it granted. Defaults: 1
	// minute, 1 hour.
	MinTTL, MaxTTL time.Duration
	// NoExpiry grants subscriptions without end to clients that ask for them. It requires a Store
	// that is durable.
	NoExpiry bool
	// MaxSubscriptions limits the subscriptions of all principals, MaxPerPrincipal those of a
	// single principal. Defaults: 10,000 and 100.
	MaxSubscriptions, MaxPerPrincipal int
	// Timeout bounds an attempt to deliver, from the lookup of the host to the response. The
	// timeout of Fetcher applies too. Default: 5 seconds.
	Timeout time.Duration
	// IsVerified reports whether the owner of a URL is known to accept deliveries for a principal,
	// such as a URL on a list of the server. Such a URL is not challenged. Default: every URL is
	// challenged.
	IsVerified func(ctx context.Context, p *mcp.Principal, url string) bool
	// Logger receives warnings about the store and about events that cannot be sent. Default:
	// slog.Default().
	Logger *slog.Logger
}

// A Sender delivers the events of subscriptions to their URLs, in the order of the feed. Before a
// URL receives events for a principal, the Sender proves with a challenge that its owner wants
// them. All methods are safe for concurrent use.
//
// Spec: SEP-3415, Webhook-Based Delivery.
type Sender struct {
	o     SenderOptions
	fetch *oauthfetch.Fetcher
	// transport sends requests without the additions of a client: redirects, cookies and a further timer.
	transport http.RoundTripper
	ctx       context.Context // ends with Close
	stop      context.CancelCauseFunc
	work      sync.WaitGroup // deliveries
	pool      *workers

	mu         sync.Mutex // guards the fields below
	feed       Feed       // nil before Start
	active     map[string]*subscription
	counts     map[string]int // subscriptions by principal
	challenges challenges
}

// NewSender returns a Sender. opts may be nil. It panics if the options grant subscriptions without
// end, or for more than an hour, and the store is not durable.
func NewSender(opts *SenderOptions) *Sender {
	o := *cmp.Or(opts, new(SenderOptions))
	if o.Store == nil {
		o.Store = NewMemory()
	}
	o.MaxTTL = cmp.Or(o.MaxTTL, defaultMaxTTL)
	o.MinTTL = min(cmp.Or(o.MinTTL, defaultMinTTL), o.MaxTTL)
	o.TTL = min(max(cmp.Or(o.TTL, defaultTTL), o.MinTTL), o.MaxTTL)
	o.MaxSubscriptions = cmp.Or(o.MaxSubscriptions, defaultMax)
	o.MaxPerPrincipal = cmp.Or(o.MaxPerPrincipal, defaultPerPrincipal)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if (o.NoExpiry || o.MaxTTL > defaultMaxTTL) && !o.Store.Durable() {
		panic("webhook: NoExpiry, and a MaxTTL of more than an hour, require a Store that is durable")
	}
	fetcher := cmp.Or(o.Fetcher, oauth.NewFetcher(nil))
	s := &Sender{o: o, active: map[string]*subscription{}, counts: map[string]int{}}
	s.fetch = (*oauthfetch.Fetcher)(fetcher).WithoutCertificates().KeepingConnections(idleConnection)
	s.transport = s.fetch.HTTPClient().Transport
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.pool = newWorkers(s.ctx, &s.work)
	return s
}

// Start begins to deliver the events of a feed, at first for the subscriptions in the store. A
// record that cannot be read is logged and skipped. Start must be called once.
func (s *Sender) Start(ctx context.Context, feed Feed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed = feed
	for r, err := range s.o.Store.All(ctx) {
		if err != nil && r.ID == "" {
			return fmt.Errorf("webhook: read the subscriptions: %w", err)
		}
		sub, err := s.restore(r, err)
		if err != nil {
			s.o.Logger.ErrorContext(ctx, "webhook: a stored subscription is lost", "id", r.ID, "error", err)
			continue
		}
		if sub.isOver() {
			_ = s.delete(ctx, r.ID) // the next restart tries again
			continue
		}
		close(sub.ready)
		s.activate(sub)
	}
	if leased, ok := s.o.Store.(LeasedStore); ok {
		s.work.Go(func() { s.stopWithout(leased) })
	}
	return nil
}

// errLost is the error of calls after the loss of the lease.
var errLost = errors.New("webhook: the sender has stopped, because the lease of its store was lost")

// stopWithout ends all deliveries when the lease of the store is lost.
func (s *Sender) stopWithout(leased LeasedStore) {
	select {
	case <-leased.Lost():
		s.o.Logger.Error("webhook: all deliveries end, because the lease of the store was lost")
		s.stop(errLost)
	case <-s.ctx.Done():
	}
}

// Close stops all deliveries and waits for them. Subscriptions remain in the store.
func (s *Sender) Close() error {
	s.mu.Lock()
	s.stop(nil)
	s.mu.Unlock()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, sub := range s.active {
		err = errors.Join(err, sub.flush(ctx))
	}
	s.active, s.feed = nil, nil
	(&http.Client{Transport: s.transport}).CloseIdleConnections()
	return err
}

// A Request creates a subscription, or refreshes the subscription with the same principal, URL,
// name and arguments.
type Request struct {
	events.Subscription
	events.Start
	URL      string
	Secret   string        // see [ParseSecret]
	TTL      time.Duration // suggested lifetime; 0 for the default of the server
	NoExpiry bool          // suggests a subscription without end
}

// A Grant is the response to a [Request].
type Grant struct {
	ID        string    // as deliveries name the subscription
	Expires   time.Time // zero without end
	Cursor    string    // every event up to it was accepted or given up
	Truncated bool      // events were skipped
	Status    *Status   // of deliveries; nil for a new subscription
}

// Status describes the deliveries of a subscription.
type Status struct {
	Active       bool      // false if the Sender had stopped to deliver, until this refresh
	LastDelivery time.Time // the last time that the endpoint accepted a message; zero if never
	LastError    string    // category of the last failure: see [CategoryTimeout]; empty after a success
	FailedSince  time.Time // zero after a success
}

// Subscribe creates or refreshes a subscription. The error for the client is an [*mcp.Error].
// A new subscription is in the store when Subscribe returns.
func (s *Sender) Subscribe(ctx context.Context, r Request) (*Grant, error) {
	id, secret, err := s.check(&r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	sub, feed := s.active[id], s.feed
	if err = context.Cause(s.ctx); err == nil && sub == nil {
		err = s.checkRoom(r.Principal)
	}
	s.mu.Unlock()
	if feed == nil {
		return nil, errors.New("webhook: the sender was not started, or it was closed")
	}
	if err != nil {
		return nil, err
	}
	// This also checks the permission, of the principal as it is stored: later checks know no more.
	subject := r.Subscription
	subject.Principal = storedPrincipal(r.Principal).public()
	cursor, truncated, err := feed.Begin(ctx, subject, r.Start)
	if err != nil {
		return nil, err
	}
	if sub != nil {
		if grant, err := sub.refresh(ctx, r, secret); grant != nil || err != nil {
			return grant, err
		}
	}
	if err := s.verify(ctx, id, r, secret); err != nil {
		return nil, err
	}
	grant, err := s.add(ctx, id, r, secret, cursor)
	if grant != nil && grant.Status == nil {
		grant.Truncated = truncated
	}
	return grant, err
}

// add adds a subscription that begins at a cursor.
func (s *Sender) add(ctx context.Context, id string, r Request, secret Secret, cursor string) (*Grant, error) {
	sub := s.newSubscription(id, r, secret)
	sub.Cursor, sub.Expires = cursor, s.expiry(r)
	s.mu.Lock()
	var err error
	other := s.active[id]
	if other != nil && other.release() {
		s.deactivate(other)
		other = nil
	}
	if other == nil {
		if err = cmp.Or(context.Cause(s.ctx), s.checkRoom(r.Principal)); err == nil {
			s.activate(sub)
		}
	}
	s.mu.Unlock()
	if other != nil { // another call was faster
		grant, err := other.refresh(ctx, r, secret)
		if grant == nil && err == nil {
			err = errors.New("webhook: the subscription was ended at the same time")
		}
		return grant, err
	}
	if err != nil {
		return nil, err
	}
	if err := sub.save(ctx); err != nil {
		_, _ = s.remove(ctx, sub, always)
		return nil, err
	}
	close(sub.ready)
	return &Grant{ID: id, Expires: sub.Expires, Cursor: cursor}, nil
}

// Unsubscribe ends a subscription and its deliveries. The error is an [*mcp.Error] with
// [events.CodeNotFound] if there is no such subscription of the principal. After an error of the
// store, the deliveries have ended, but a restart would resume them: the Sender repeats the deletion
// every minute, and a further call at once.
func (s *Sender) Unsubscribe(ctx context.Context, sub events.Subscription, url string) error {
	if sub.Principal == nil {
		return errAnonymous
	}
	id, err := deriveID(sub, url)
	if err != nil {
		return err
	}
	s.mu.Lock()
	found := s.active[id]
	s.mu.Unlock()
	if found == nil {
		return events.NotFound("subscription")
	}
	ended, err := s.remove(ctx, found, always)
	if err == nil && !ended {
		return events.NotFound("subscription")
	}
	return err
}

// Has reports whether a subscription exists, which [Sender.Subscribe] would refresh.
func (s *Sender) Has(sub events.Subscription, url string) bool {
	if sub.Principal == nil {
		return false
	}
	id, err := deriveID(sub, url)
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && s.active[id] != nil
}

// Count returns the number of subscriptions.
func (s *Sender) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

var errAnonymous = events.Forbidden("webhook delivery requires an authenticated caller")

func dataError(code int, message, data string) *mcp.Error {
	return &mcp.Error{Code: code, Message: message, Data: json.RawMessage(data)}
}

// check validates a request, sets the default of its arguments, and returns its identifier.
func (s *Sender) check(r *Request) (id string, secret Secret, err error) {
	if r.Principal == nil {
		return "", secret, errAnonymous
	}
	if len(r.Arguments) == 0 {
		r.Arguments = json.RawMessage("{}")
	}
	if id, err = deriveID(r.Subscription, r.URL); err != nil {
		return "", secret, err
	}
	if len(r.Details) > maxDetails {
		return "", secret, events.Exhausted("bytes about the caller", maxDetails)
	}
	if _, err := s.checkURL(r.URL); err != nil {
		return "", secret, mcp.Errorf(mcp.CodeInvalidParams, "invalid delivery.url: %v", err)
	}
	if secret, err = ParseSecret(r.Secret); err != nil {
		return "", secret, mcp.Errorf(mcp.CodeInvalidParams, "invalid delivery.secret: %v", err)
	}
	return id, secret, nil
}

// checkURL refuses a URL to which nothing may be delivered, whatever the address of its host is.
func (s *Sender) checkURL(text string) (*url.URL, error) {
	u, err := s.fetch.CheckURL(text)
	if err == nil && u.Scheme != "https" {
		err = fmt.Errorf("%w: must be https", oauth.ErrURLRefused)
	}
	if err == nil && len(u.Hostname()) > maxHost {
		err = fmt.Errorf("%w: the host must have at most %d bytes", oauth.ErrURLRefused, maxHost)
	}
	return u, err
}

// canonical returns arguments in the form of RFC 8785, in which equal arguments are equal bytes. It
// keeps integers, which the form would round.
func canonical(arguments json.RawMessage) (json.RawMessage, error) {
	if len(arguments) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(arguments) > maxArguments {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "arguments have %d bytes, more than %d", len(arguments),
			maxArguments)
	}
	value := jsontext.Value(strings.Clone(string(arguments)))
	if err := value.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil || value.Kind() != '{' {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "arguments is not a JSON object")
	}
	return json.RawMessage(value), nil
}

// deriveID returns the identifier of a subscription, which is the same after a restart. The lengths
// keep its parts apart.
func deriveID(s events.Subscription, url string) (string, error) {
	arguments, err := canonical(s.Arguments)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	parts := []string{s.Principal.Key(), url, s.Name, string(arguments)}
	if s.Scope != "" { // subscriptions without a scope keep the identifiers of earlier versions
		parts = append(parts, s.Scope)
	}
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "sub_" + hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// expiry returns the end of a subscription that is created or refreshed now; zero for no end.
func (s *Sender) expiry(r Request) time.Time {
	switch {
	case r.NoExpiry && s.o.NoExpiry:
		return time.Time{}
	case r.NoExpiry:
		return time.Now().Add(s.o.MaxTTL)
	case r.TTL == 0:
		return time.Now().Add(s.o.TTL)
	}
	return time.Now().Add(min(max(r.TTL, s.o.MinTTL), s.o.MaxTTL))
}

// checkRoom returns an error if a principal may not add a subscription. The caller holds mu.
func (s *Sender) checkRoom(p *mcp.Principal) error {
	switch {
	case s.counts[p.Key()] >= s.o.MaxPerPrincipal:
		return events.Exhausted("subscriptions", s.o.MaxPerPrincipal)
	case len(s.active) >= s.o.MaxSubscriptions:
		return dataError(events.CodeResourceExhausted, "the server has no room for subscriptions",
			`{"limit":"subscriptions"}`)
	}
	return nil
}

// activate adds a subscription, which delivers when it is ready. The caller holds mu.
func (s *Sender) activate(sub *subscription) {
	s.active[sub.id] = sub
	s.counts[sub.owner]++
	sub.timer = time.AfterFunc(time.Hour, func() {
		if ended, _ := s.remove(s.ctx, sub, sub.isOver); !ended {
			sub.schedule()
		}
	})
	sub.schedule()
	s.work.Go(sub.run)
}

// remove ends a subscription if a condition holds. It reports whether the subscription ended now. The
// error is that its record remains in the store, until the timer of the subscription deletes it.
func (s *Sender) remove(ctx context.Context, sub *subscription, condition func() bool) (ended bool, err error) {
	if ended, err = sub.end(ctx, condition); !ended || err != nil {
		return ended, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deactivate(sub)
	return true, nil
}

// deactivate removes a subscription that ended from those that are counted. The caller holds mu.
func (s *Sender) deactivate(sub *subscription) {
	if s.active[sub.id] != sub {
		return
	}
	delete(s.active, sub.id)
	if s.counts[sub.owner]--; s.counts[sub.owner] == 0 {
		delete(s.counts, sub.owner)
	}
}

func (s *Sender) delete(ctx context.Context, id string) error {
	err := s.o.Store.Delete(context.WithoutCancel(ctx), id)
	if err != nil {
		s.o.Logger.ErrorContext(ctx, "webhook: a subscription that ended remains in the store", "id", id, "error", err)
	}
	return err
}

// verify proves that the owner of a URL accepts deliveries for a principal. A subscription of the
// principal to the same URL is a proof.
//
// Spec: SEP-3415, Webhook security, Endpoint verification.
func (s *Sender) verify(ctx context.Context, id string, r Request, secret Secret) error {
	if s.o.IsVerified != nil && s.o.IsVerified(ctx, r.Principal, r.URL) {
		return nil
	}
	u, err := s.checkURL(r.URL)
	if err != nil {
		return err
	}
	key := r.Principal.Key()
	s.mu.Lock()
	for _, sub := range s.active {
		if sub.URL == r.URL && sub.owner == key {
			s.mu.Unlock()
			return nil
		}
	}
	err = s.challenges.take(key, strings.TrimSuffix(netx.LowerASCII(u.Hostname()), "."), time.Now())
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.challenge(ctx, id, r.URL, secret)
}

const (
	challengePeriod = time.Minute
	// maxChallenges limits the challenges for a principal at a host in a period, and
	// maxHostChallenges those for all principals: an attacker could flood the host with them. The
	// ports of a host share the limits. maxPrincipalChallenges limits those for a principal at all
	// hosts: names of many hosts may lead to the same address.
	maxChallenges, maxHostChallenges, maxPrincipalChallenges = 10, 60, 100
	// maxCounts limits the numbers that are kept, and so the memory of a period.
	maxCounts = 10_000
	// maxHost limits the name of a host, in bytes. Names in DNS are no longer.
	maxHost = 253
)

// challenges counts the challenges of a period. The caller must lock it.
type challenges struct {
	start  time.Time
	counts map[[2]string]int // by principal and host; either is empty for the sum over all
}

func (c *challenges) take(principal, host string, now time.Time) error {
	if now.Sub(c.start) >= challengePeriod {
		c.start, c.counts = now, map[[2]string]int{}
	}
	limits := []struct {
		key   [2]string
		limit int
	}{{[2]string{principal, host}, maxChallenges}, {[2]string{"", host}, maxHostChallenges},
		{[2]string{principal, ""}, maxPrincipalChallenges}}
	if len(c.counts)+len(limits) > maxCounts {
		return events.Exhausted("challenges of all callers", maxCounts)
	}
	for _, l := range limits {
		if c.counts[l.key] >= l.limit {
			return events.Exhausted("challenges", l.limit)
		}
	}
	for _, l := range limits {
		c.counts[l.key]++
	}
	return nil
}
