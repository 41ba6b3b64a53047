package mcptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Methods of subscriptions.
const (
	acknowledged    = "notifications/subscriptions/acknowledged"
	resourceUpdated = "notifications/resources/updated"
)

// listChanges are the members of a filter, by the notification that they request.
var listChanges = map[string]string{
	"notifications/tools/list_changed":     "toolsListChanged",
	"notifications/prompts/list_changed":   "promptsListChanged",
	"notifications/resources/list_changed": "resourcesListChanged",
}

// A subscription is an open subscriptions/listen.
type subscription struct {
	asked    filter
	honoured *filter // acknowledged by the server; nil before
}

// A filter is the JSON object of a subscription's filter.
type filter map[string]json.RawMessage

func newSubscription(params json.RawMessage) *subscription {
	var p struct{ Notifications filter }
	_ = json.Unmarshal(params, &p) // the server rejects malformed filters
	return &subscription{asked: p.Notifications}
}

func (f filter) has(member string) bool { return string(f[member]) == "true" }

func (f filter) resources() (uris []string) {
	_ = json.Unmarshal(f["resourceSubscriptions"], &uris)
	return uris
}

// covers reports whether a resource or a resource above it is in the filter.
func (f filter) covers(uri string) bool {
	return slices.ContainsFunc(f.resources(), func(subscribed string) bool {
		return uri == subscribed || strings.HasPrefix(uri, strings.TrimSuffix(subscribed, "/")+"/")
	})
}

// within reports whether everything in f is also in all.
func (f filter) within(all filter) bool {
	for member, value := range f {
		asked, ok := all[member]
		if member != "resourceSubscriptions" && string(value) != "false" && (!ok || string(asked) == "false") {
			return false
		}
	}
	asked := all.resources()
	return !slices.ContainsFunc(f.resources(), func(uri string) bool { return !slices.Contains(asked, uri) })
}

// checkSubscription checks a notification of a subscription. The caller must hold the lock. Spec:
// basic/patterns/subscriptions (2026-07-28).
func (c *Client) checkSubscription(m *jsonrpc.Message) error {
	list, isList := listChanges[m.Method]
	topic := c.Options.Extension.Topics[m.Method]
	isTopic := topic != ""
	if !c.Modern() || !isList && !isTopic && m.Method != acknowledged && m.Method != resourceUpdated {
		return nil
	}
	var p struct {
		Notifications filter
		URI           string
		Meta          struct {
			ID jsonrpc.ID `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return err
	}
	s := c.subscriptions[p.Meta.ID]
	switch {
	case s == nil:
		return fmt.Errorf("no subscription %s is open", p.Meta.ID)
	case m.Method == acknowledged && s.honoured != nil:
		return fmt.Errorf("acknowledged twice")
	case m.Method == acknowledged && !p.Notifications.within(s.asked):
		return fmt.Errorf("acknowledges what was not asked for")
	case m.Method == acknowledged:
		s.honoured = &p.Notifications
	case s.honoured == nil:
		return fmt.Errorf("not acknowledged yet")
	case isTopic:
		if _, honoured := (*s.honoured)[topic]; !honoured {
			return fmt.Errorf("not subscribed to")
		}
	case isList && !s.honoured.has(list), !isList && !s.honoured.covers(p.URI):
		return fmt.Errorf("not subscribed to")
	}
	return nil
}

// Listen subscribes to changes: with subscriptions/listen in the modern era, with
// resources/subscribe and an open stream in a session. It returns when the server sends changes.
// Outside a synctest bubble, it cannot wait for that in a session. stop ends the subscription, and
// in a session the subscriptions to resources.
func (c *Client) Listen(f mcp.SubscriptionFilter) (stop func()) {
	c.t.Helper()
	if c.Modern() {
		before := len(c.Notifications(acknowledged))
		p := c.Send("subscriptions/listen", map[string]any{"notifications": f})
		c.Await(before+1, acknowledged)
		return func() { p.Cancel("enough") }
	}
	c.conn.listen()
	for _, uri := range f.ResourceSubscriptions {
		c.Call("resources/subscribe", map[string]any{"uri": uri})
	}
	if c.bubble {
		synctest.Wait()
	}
	return func() {
		for _, uri := range f.ResourceSubscriptions {
			c.Call("resources/unsubscribe", map[string]any{"uri": uri})
		}
	}
}
