// Command limit is the baseline server for subscribed clients. It uses bare
// net/http, a handler for each stream that waits on a channel, and a call that
// sends to all channels. It parses and checks nothing.
package main

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

const (
	answerOpening = `{"jsonrpc":"2.0","id":`
	content       = `,"result":{"resultType":"complete","content":[{"type":"text","text":"` + echo.Message + `"}]}}`
	initialized   = `,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
		`"serverInfo":{"name":"limit","version":"1.0.0"}}}`
	// The events have the same length as this project's, including the id.
	acknowledged = `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":` +
		`{"_meta":{"io.modelcontextprotocol/subscriptionId":100000000},"notifications":{"toolsListChanged":true}}}` +
		"\n\n"
	modernChange = `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":` +
		`{"_meta":{"io.modelcontextprotocol/subscriptionId":100000000}}}` + "\n\n"
	sessionChange = "id: sABCDEFGHIJKLMNOPQRSTUVWXYZ-12\n" +
		`data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}` + "\n\n"
	modernUpdate = `data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":` +
		`{"uri":"` + echo.UpdatedResource + `","_meta":{"io.modelcontextprotocol/subscriptionId":100000000}}}` + "\n\n"
	sessionUpdate = "id: sABCDEFGHIJKLMNOPQRSTUVWXYZ-12\n" +
		`data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + echo.UpdatedResource +
		`"}}` + "\n\n"
)

func main() {
	rig.Main(rig.Program{
		HTTP: func(opts rig.Options) http.Handler {
			h := &handler{event: []byte(sessionChange), listeners: make(map[chan struct{}]bool)}
			updates := opts.Tool == echo.UpdateTool
			if updates {
				h.event = []byte(sessionUpdate)
			}
			if opts.Era == echo.Modern {
				h.acknowledgement, h.event = []byte(acknowledged), []byte(modernChange)
				if updates {
					h.event = []byte(modernUpdate)
				}
			}
			return h
		},
	})
}

type handler struct {
	acknowledgement, event []byte

	mu        sync.Mutex // guards the fields below
	listeners map[chan struct{}]bool
	sessions  int
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		h.listen(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	result := content
	switch member(body, `"method":"`, '"') {
	case "subscriptions/listen":
		h.listen(w, r)
		return
	case "initialize":
		w.Header().Set("Mcp-Session-Id", h.newSession())
		result = initialized
	case "notifications/initialized":
		w.WriteHeader(http.StatusAccepted)
		return
	case "resources/subscribe":
		result = `,"result":{}}`
	default:
		h.change()
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, answerOpening+member(body, `"id":`, ',')+result)
}

// listen serves an event stream and writes an event for each change.
func (h *handler) listen(w http.ResponseWriter, r *http.Request) {
	changed := make(chan struct{}, 1)
	h.mu.Lock()
	h.listeners[changed] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, changed)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flusher := http.NewResponseController(w)
	for event := h.acknowledgement; ; event = h.event {
		if _, err := w.Write(event); err != nil || flusher.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// change notifies every stream. A stream that still handles the last change
// coalesces the two.
func (h *handler) change() {
	h.mu.Lock()
	all := make([]chan struct{}, 0, len(h.listeners))
	for changed := range h.listeners {
		all = append(all, changed)
	}
	h.mu.Unlock()
	for _, changed := range all {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

func (h *handler) newSession() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions++
	return "limit-" + strconv.Itoa(h.sessions)
}

// member returns the bytes between the key and the given end.
func member(body []byte, key string, end byte) string {
	_, after, _ := bytes.Cut(body, []byte(key))
	return string(after[:max(0, bytes.IndexByte(after, end))])
}
