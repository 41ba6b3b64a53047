package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"slices"
	"time"
)

const (
	changesTopic = "mcphttp/changes" // changes of lists and resources, for all processes
	// maxChanges limits the changes that wait for the bus. More changes count as a change of everything.
	maxChanges = 1024
	// maxChangedURI limits a URI, in bytes. Clients cannot subscribe to longer URIs.
	maxChangedURI = 8 << 10
	// changesPerMessage keeps a message within the payload that each bus carries.
	changesPerMessage = 64
)

// announced is a message to all processes about changes at a server, which ignores its own messages.
type announced struct {
	Origin  string   `json:"origin"`
	Changes []change `json:"changes"`
}

// A change is the method of a notification and the URI of an updated resource. The zero change stands
// for all changes.
type change struct {
	Method string `json:"method,omitempty"`
	URI    string `json:"uri,omitempty"`
}

// relay sends a change at this server to the other processes soon. It does not wait.
func (t *sessions) relay(method, uri string) {
	x, c := &t.shared, change{method, uri}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended, len(c.URI) > maxChangedURI:
		return
	case slices.Contains(x.changes, c), slices.Contains(x.changes, change{}): // it will be sent already
		return
	case len(x.changes) == maxChanges:
		x.changes = []change{{}}
	default:
		x.changes = append(x.changes, c)
	}
	if x.relaying == nil {
		x.relaying = time.AfterFunc(0, t.sendChanges)
	}
}

// sendChanges sends the changes that wait. After a failure, it tries again to report a change of
// everything.
func (t *sessions) sendChanges() {
	x := &t.shared
	for {
		x.mu.Lock()
		if x.ended {
			x.changes = nil
		}
		n := min(len(x.changes), changesPerMessage)
		m := announced{x.origin, x.changes[:n]}
		x.changes, x.relaying = x.changes[n:], nil
		x.mu.Unlock()
		if n == 0 {
			return
		}
		data, err := stdjson.Marshal(&m)
		if err == nil {
			_, err = x.publish(changesTopic, data)
		}
		if err != nil {
			x.log.error(context.Background(), "mcphttp: changes not sent to other processes", err)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.changes = []change{{}}
			if x.relaying == nil && !x.ended {
				x.relaying = time.AfterFunc(repeatPause, t.sendChanges)
			}
			return
		}
	}
}

// receiveChanges notifies the subscriptions at this process of changes at other processes, and of a
// change of everything if the bus lost messages.
func (t *sessions) receiveChanges(payload []byte) {
	m := announced{Changes: []change{{}}}
	if payload != nil {
		m = announced{}
		if stdjson.Unmarshal(payload, &m) != nil || m.Origin == t.shared.origin {
			return
		}
	}
	for _, c := range m.Changes {
		t.shared.announce(c.Method, c.URI)
	}
}
