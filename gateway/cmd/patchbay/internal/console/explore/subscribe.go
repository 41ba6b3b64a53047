package explore

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxSubscriptions bounds the subscriptions of all people, of which each holds a connection.
const maxSubscriptions = 64

// A subscription follows the updates of a resource for a person.
type subscription struct {
	Began, Updated time.Time // Updated is the last update
	IsOpen         bool      // the server agreed
	Updates        int
	Ended          string // why the subscription ended, or ""
	cancel         context.CancelCauseFunc
}

// A subscriptionKey identifies a subscription.
type subscriptionKey struct{ server, person, uri string }

// actSubscribe subscribes to a resource, or ends the subscription.
func (e *explorer) actSubscribe(r *page.Request) (*page.Outcome, error) {
	key := subscriptionKey{r.PostFormValue("server"), question.PersonOf(r.Principal), r.PostFormValue("name")}
	if err := servers.Check(r, key.server); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.subscriptions[key]; old != nil {
		old.cancel(nil)
	}
	delete(e.subscriptions, key)
	if r.PostFormValue("do") != "end" {
		maps.DeleteFunc(e.subscriptions, func(_ subscriptionKey, s *subscription) bool { return s.Ended != "" })
		if len(e.subscriptions) >= maxSubscriptions {
			return nil, page.Problem(http.StatusConflict, "too_many_subscriptions",
				"the console has %d subscriptions: end a subscription first", maxSubscriptions)
		}
		ctx, cancel := context.WithCancelCause(e.site.Context())
		s := &subscription{Began: time.Now(), cancel: cancel}
		e.subscriptions[key] = s
		e.site.Background(func(context.Context) { // ends with ctx, which ends with Serve
			defer cancel(nil)
			err := e.watch(ctx, s, key, r.Principal)
			e.update(func() { s.Ended = err.Error() })
		})
	}
	e.site.Changed()
	at := explorePlace{Server: key.server, Kind: kindResources, Name: key.uri}
	return &page.Outcome{Location: at.URL(), Fragments: []page.Fragment{}}, nil
}

// update changes a subscription and tells the pages.
func (e *explorer) update(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	e.site.Changed()
}

// watch subscribes, and returns why the subscription ended.
func (e *explorer) watch(ctx context.Context, s *subscription, key subscriptionKey, p *mcp.Principal) error {
	client, err := e.catalogues.client(ctx, key.server, p)
	if err != nil {
		return err
	}
	defer client.Close()
	for event, err := range client.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{key.uri}}) {
		switch {
		case err != nil:
			return err
		case event.Kind == mcp.EventListening && !slices.Contains(event.Filter.ResourceSubscriptions, key.uri):
			return errors.New("the server does not announce changes of the resource")
		case event.Kind == mcp.EventListening:
			e.update(func() { s.IsOpen = true })
		default: // an update, or changes were missed
			e.update(func() { s.Updates, s.Updated = s.Updates+1, time.Now() })
		}
	}
	return context.Cause(ctx)
}

// disconnected ends the subscriptions of a server that is no longer connected.
func (e *explorer) disconnected(ctx context.Context, server string) {
	var row servers.Row
	err := e.site.Call(ctx, nil, http.MethodGet, "/servers/"+url.PathEscape(server), nil, &row)
	if err != nil || row.IsConnected() || row.Kind() == "busy" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, s := range e.subscriptions {
		if key.server == server && s.IsOpen {
			s.cancel(errors.New("the server disconnected"))
		}
	}
}

// addSubscriptions sets the subscriptions of the person to resources of the server.
func (e *explorer) addSubscriptions(r *page.Request, p *explorePage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.Subscriptions = map[string]subscription{}
	for key, s := range e.subscriptions {
		if key.server == p.At.Server && key.person == question.PersonOf(r.Principal) && p.At.Kind == kindResources {
			p.Subscriptions[key.uri] = *s
		}
	}
}

// Subscription returns the subscription to the selected resource; Began is zero without it.
func (p *explorePage) Subscription() subscription { return p.Subscriptions[p.At.Name] }

// offersSubscription reports whether the person may subscribe to the item, or end a subscription.
func (p *explorePage) offersSubscription() bool {
	return p.At.As == "" && p.Role == page.RoleOperator && p.At.Kind == kindResources && p.Item != nil &&
		(p.Catalogue.Subscribes || !p.Subscription().Began.IsZero())
}
