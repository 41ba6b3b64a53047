package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// endlessRefresh is how often a subscription without end is refreshed, so that the cursor
	// advances and a suspended delivery resumes.
	endlessRefresh = time.Hour
	// minRefresh is the shortest time between two refreshes, whatever a server grants.
	minRefresh = 5 * time.Second
	// maxRefreshFailures is the number of refreshes in sequence that may fail after the subscription
	// expired, and maxRefreshDelay the longest time between them.
	maxRefreshFailures = 5
	maxRefreshDelay    = time.Minute
	// unsubscribeTimeout bounds the request that ends a subscription.
	unsubscribeTimeout = 5 * time.Second
)

// SubscribeOptions configures a subscription of a client. URL and Receiver are required.
type SubscribeOptions struct {
	// URL is the public URL of the Receiver.
	URL string
	// Receiver receives the messages.
	Receiver *Receiver
	// Cursor is a stored position at which to continue. Default: the subscription starts now.
	Cursor string
	// MaxAge is the age of the oldest occurrence to receive after Cursor. Default: no limit.
	MaxAge time.Duration
	// TTL is the lifetime to suggest to the server, and NoExpiry suggests no end. Default: that of
	// the server.
	TTL      time.Duration
	NoExpiry bool
	// Position receives each new position that may be stored as the Cursor of a later subscription.
	// It may be called concurrently. Default: positions are ignored.
	Position func(cursor string)
	// Refreshed receives the grant of each request, which tells about gaps and failed deliveries.
	// Default: grants are ignored.
	Refreshed func(g *Grant)
}

// Subscribe subscribes to an event type of a server by webhook, and refreshes the subscription until
// ctx ends; then it unsubscribes and returns nil. args are the arguments of the subscription, encoded
// as by encoding/json; nil means none. handle is called for each message; see [Handler]. Each
// subscription uses a new secret.
//
// The error is an [*mcp.Error] if the server refused or ended the subscription,
// [events.ErrNotOffered], or the error of a refresh after the subscription expired, if five in
// sequence failed.
//
// Spec: SEP-3415, Webhook-Based Delivery.
func Subscribe(ctx context.Context, c *mcp.Client, name string, args any, handle Handler,
	opts *SubscribeOptions) error {
	if !events.Offered(c) {
		return fmt.Errorf("webhook: %s: %w", methodSubscribe, events.ErrNotOffered)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := &keeper{client: c, name: name, args: args, opts: *opts, secret: NewSecret(), cursor: opts.Cursor}
	route, err := opts.Receiver.Add(k.secret, func(ctx context.Context, m *Message) error {
		if err := handle(ctx, m); err != nil {
			return err
		}
		k.moveTo(m.Cursor)
		if m.Error != nil {
			cancel(m.Error)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer route.Close()
	err = k.run(ctx, route)
	if ended, ok := errors.AsType[*mcp.Error](context.Cause(ctx)); ok {
		return fmt.Errorf("webhook: %q ended: %w", name, ended)
	}
	if ctx.Err() != nil {
		return k.unsubscribe(ctx)
	}
	return err
}

// SubscribeOnce creates a subscription by webhook, or refreshes the caller's subscription to the same event type,
// arguments and URL, and does not keep it alive. It is for a receiver in another program, which must know
// the secret before: the server sends it a challenge. Receiver, Position and Refreshed of opts are ignored.
// The error is an [*mcp.Error] if the server refused, or [events.ErrNotOffered].
//
// Spec: SEP-3415, Subscribing.
func SubscribeOnce(ctx context.Context, c *mcp.Client, name string, args any, secret Secret,
	opts *SubscribeOptions) (*Grant, error) {
	if !events.Offered(c) {
		return nil, fmt.Errorf("webhook: %s: %w", methodSubscribe, events.ErrNotOffered)
	}
	k := &keeper{client: c, name: name, args: args, opts: *opts, secret: secret, cursor: opts.Cursor}
	return k.subscribe(ctx)
}

// Unsubscribe ends the caller's subscription to an event type with arguments and a URL. The error is an
// [*mcp.Error] with [events.CodeNotFound] if there is no such subscription, or [events.ErrNotOffered].
//
// Spec: SEP-3415, Unsubscribing.
func Unsubscribe(ctx context.Context, c *mcp.Client, name string, args any, url string) error {
	if !events.Offered(c) {
		return fmt.Errorf("webhook: %s: %w", methodUnsubscribe, events.ErrNotOffered)
	}
	k := &keeper{client: c, name: name, args: args, opts: SubscribeOptions{URL: url}}
	if err := k.end(ctx); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}

// A keeper keeps a subscription alive.
type keeper struct {
	client *mcp.Client
	name   string
	args   any
	opts   SubscribeOptions
	secret Secret

	mu     sync.Mutex
	cursor string // guarded by mu
}

func (k *keeper) moveTo(cursor string) {
	if cursor == "" {
		return
	}
	k.mu.Lock()
	changed := k.cursor != cursor
	k.cursor = cursor
	k.mu.Unlock()
	if changed && k.opts.Position != nil {
		k.opts.Position(cursor)
	}
}

// run refreshes the subscription until ctx ends or it cannot be refreshed.
func (k *keeper) run(ctx context.Context, route *Route) error {
	failures := 0
	var expires time.Time // zero before the first grant
	for ctx.Err() == nil {
		grant, err := k.subscribe(ctx)
		if err != nil {
			// A subscription that never began cannot be repaired, nor can one that is refused.
			refused, ok := errors.AsType[*mcp.Error](err)
			isLost := failures+1 >= maxRefreshFailures && !time.Now().Before(expires)
			if isLost || route.isUnbound() || ok && isFinal(refused) {
				return err
			}
			sleep(ctx, withJitter(min(minRefresh<<min(failures, maxRefreshFailures), maxRefreshDelay)))
			failures++
			continue
		}
		failures, expires = 0, grant.Expires
		if expires.IsZero() {
			expires = time.Now().Add(2 * endlessRefresh)
		}
		route.Bind(grant.ID)
		k.moveTo(grant.Cursor)
		if k.opts.Refreshed != nil {
			k.opts.Refreshed(grant)
		}
		wait := endlessRefresh
		if !grant.Expires.IsZero() {
			// Half of the time is left for attempts that fail. A server may grant years.
			wait = min(max(time.Until(grant.Expires)/2, minRefresh), wait)
		}
		sleep(ctx, wait)
	}
	return nil
}

type clientParams struct {
	Name      string         `json:"name"`
	Arguments any            `json:"arguments,omitzero"`
	Delivery  deliveryParams `json:"delivery"`
}

type subscribeParams struct {
	clientParams
	Cursor *string `json:"cursor"`
	MaxAge int64   `json:"maxAgeMs,omitzero"`
}

// params returns the params that identify the subscription.
func (k *keeper) params() clientParams {
	return clientParams{Name: k.name, Arguments: k.args,
		Delivery: deliveryParams{Mode: new(string(events.ModeWebhook)), URL: k.opts.URL, Secret: k.secret.Reveal()}}
}

func (k *keeper) subscribe(ctx context.Context) (*Grant, error) {
	k.mu.Lock()
	p := subscribeParams{clientParams: k.params(), Cursor: nullable(k.cursor), MaxAge: k.opts.MaxAge.Milliseconds()}
	k.mu.Unlock()
	var params any = p
	if k.opts.TTL > 0 || k.opts.NoExpiry {
		params = struct {
			subscribeParams
			TTL *int64 `json:"ttlMs"`
		}{p, nullable(k.ttl())}
	}
	raw, err := k.client.Do(ctx, methodSubscribe, params)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	var res subscribeResult
	if err := jsonv2.Unmarshal(raw, &res); err != nil || !isID(res.ID) {
		return nil, fmt.Errorf("webhook: %s: %w", methodSubscribe, cmp.Or(err, mcp.ErrInvalidResult))
	}
	g := &Grant{ID: res.ID, Expires: valueOf(res.RefreshBefore), Cursor: valueOf(res.Cursor), Truncated: res.Truncated}
	if st := res.Status; st != nil {
		g.Status = &Status{st.Active, valueOf(st.LastDelivery), valueOf(st.LastError), valueOf(st.FailedSince)}
	}
	return g, nil
}

// ttl returns the suggested lifetime in milliseconds, 0 for no end.
func (k *keeper) ttl() int64 {
	if k.opts.NoExpiry {
		return 0
	}
	return max(k.opts.TTL.Milliseconds(), 1)
}

// valueOf returns the value that a member of a result contains, or the zero value.
func valueOf[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// unsubscribe ends the subscription after ctx ended. Without it the subscription would last until it
// expires.
func (k *keeper) unsubscribe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTimeout)
	defer cancel()
	err := k.end(ctx)
	if e, ok := errors.AsType[*mcp.Error](err); ok && e.Code == events.CodeNotFound {
		return nil
	}
	return err
}

func (k *keeper) end(ctx context.Context) error {
	p := k.params()
	p.Delivery.Secret = ""
	_, err := k.client.Do(ctx, methodUnsubscribe, p)
	return err
}
