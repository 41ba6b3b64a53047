package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Numbered notifications. The numbers are Unix times in milliseconds, so that they rise over
// restarts of the server.
const (
	tickTopic    = "chaos/ticks"
	tickMethod   = "notifications/chaos/tick"
	tickInterval = 40 * time.Millisecond
	clockPrefix  = "chaos://clock/"
)

// A tickNote is the content of a notification and of a clock resource.
type tickNote struct {
	For string // the principal
	N   int64
}

// ticks has the subscriptions of the topic.
type ticks struct {
	mu   sync.Mutex // guards the fields below
	next int
	open map[int]func(key string)
}

// addTicks adds the topic, which modern clients subscribe to, and the clock resources, which all
// clients subscribe to.
func (s *server) addTicks() {
	s.ticks.open = map[int]func(string){}
	s.mcp.AddTopic(tickTopic, mcp.Topic{
		Method: tickMethod,
		Open: func(_ context.Context, _ *mcp.Request, _ json.RawMessage, changed func(string)) (any, func(), error) {
			return true, s.ticks.add(changed), nil
		},
		Params: func(_ context.Context, req *mcp.Request, _ string) (json.RawMessage, error) {
			return json.Marshal(tickNote{req.Principal.Subject, time.Now().UnixMilli()})
		},
	})
	mcp.AddResourceTemplate(s.mcp, &mcp.ResourceTemplate{Name: "clock", URITemplate: clockPrefix + "{owner}"},
		func(ctx context.Context, vars struct {
			Owner string `json:"owner"`
		}) (string, error) {
			if vars.Owner != caller(ctx) {
				return "", mcp.NotFound(clockPrefix + vars.Owner)
			}
			return fmt.Sprint(caller(ctx), " ", time.Now().UnixMilli()), nil
		})
}

// parseClock parses the content of a clock resource.
func parseClock(text string) (tickNote, error) {
	owner, number, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	return tickNote{owner, n}, err
}

func (t *ticks) add(changed func(key string)) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	id := t.next
	t.open[id] = changed
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, id)
	}
}

// tick notifies all subscriptions until ctx ends.
func (s *server) tick(ctx context.Context) {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		s.ticks.mu.Lock()
		for _, changed := range s.ticks.open {
			changed("tick")
		}
		s.ticks.mu.Unlock()
		for _, p := range principals {
			s.mcp.ResourceUpdated(clockPrefix + p)
		}
	}
}
