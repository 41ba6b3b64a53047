package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxEventReaders bounds the clients that read events at the same time.
	maxEventReaders = 64
	// eventPause is how often a client without events receives a comment, so that both sides notice
	// a broken connection.
	eventPause = 15 * time.Second
	// eventWriteTimeout limits the time in which a client must read a sent event. It can connect
	// again, and continue after the last event.
	eventWriteTimeout = 30 * time.Second
	// maxExchanges limits the exchanges that wait for a reader, each of at most 1 MiB. exchangeTurn
	// limits the exchanges that are sent before other events are sent again.
	maxExchanges, exchangeTurn = 8, 512
)

func eventRoutes() []*adminRoute {
	route := getRoute("/events", "Events as they happen (Server-Sent Events), from now on or after Last-Event-ID, "+
		"of the types "+strings.Join(eventTypes, ", "),
		func(*adminRequest, *eventQuery) (*adminEvent, error) { return nil, nil })
	route.stream, route.content = (*admin).streamEvents, "text/event-stream"
	return []*adminRoute{route}
}

// An eventQuery selects events.
type eventQuery struct {
	Types string `json:"types,omitzero" jsonschema:"types of events, separated by commas; default: all"`
	After string `json:"after,omitzero" jsonschema:"as the header Last-Event-ID, with the id of an event, or 0 for all"`
	Wire  int    `json:"wire,omitzero" jsonschema:"1 adds recorded exchanges,minimum=0,maximum=1"`
}

// An eventReader is a client that reads events.
type eventReader struct {
	log    *EventLog
	w      http.ResponseWriter
	out    *http.ResponseController
	types  []string // nil for all
	number uint64   // of the last event

	wire <-chan adminEvent // exchanges; nil for none
}

// streamEvents sends events until the client or the gateway ends it.
func (a *admin) streamEvents(w http.ResponseWriter, r *adminRequest) {
	var q eventQuery
	if err := decodeQuery(r.Request, &q); err != nil {
		a.fail(w, problemOf(err))
		return
	}
	types, err := parseEventTypes(q.Types)
	if err == nil && q.Wire != 0 && a.opts.Wire == nil {
		err = problemf(http.StatusConflict, "capture_off", "the gateway does not record its traffic: start it with "+
			"--capture summaries, or set the setting patchbay.capture to summaries")
	}
	if err != nil {
		a.fail(w, problemOf(err))
		return
	}
	defer a.readers.Add(-1)
	if a.readers.Add(1) > maxEventReaders {
		w.Header().Set("Retry-After", "5")
		a.fail(w, problemf(http.StatusServiceUnavailable, "too_many_readers", "%d clients read the events already",
			maxEventReaders))
		return
	}
	reader := &eventReader{log: a.events, w: w, out: http.NewResponseController(w), types: types}
	_ = reader.out.SetReadDeadline(time.Time{}) // the request was read
	id := q.After
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		id = last
	}
	known := reader.resume(id)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if !known && !reader.gap(0) {
		return
	}
	if q.Wire != 0 {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		reader.wire = exchanges(ctx, a.opts.Wire)
	}
	reader.run(a, r)
}

// exchanges returns the events of exchanges until ctx ends. A slow reader delays the events, and
// never the traffic.
func exchanges(
	ctx context.Context, wire func(ctx context.Context) iter.Seq2[json.RawMessage, uint64],
) <-chan adminEvent {
	events := make(chan adminEvent, maxExchanges)
	go func() { // ends with ctx
		for exchange, missed := range wire(ctx) {
			e := adminEvent{Type: eventExchange, Time: time.Now().UTC(), Missed: missed, Detail: exchange}
			if exchange == nil {
				e.Type = eventGap
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// parseEventTypes returns the types of a list, nil for all.
func parseEventTypes(text string) (types []string, err error) {
	if text == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(eventTypes, name) {
			return nil, invalidParameter("unknown type of events %.40q: must be of %s",
				name, strings.Join(eventTypes, ", "))
		}
		if !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	return types, nil
}

// resume sets the event after which the reader continues. It reports whether the later events are
// known: events of another process are not.
func (e *eventReader) resume(id string) bool {
	last := e.log.last()
	if id == "0" {
		return true
	}
	e.number = last
	if id == "" {
		return true
	}
	boot, text, _ := strings.Cut(id, "-")
	number, err := strconv.ParseUint(text, 10, 64)
	if boot != e.log.boot || err != nil || number > last {
		e.number = 0 // all that is known
		return false
	}
	e.number = number
	return true
}

// run sends events until the client or the gateway ends it.
func (e *eventReader) run(a *admin, r *adminRequest) {
	pause := time.NewTicker(eventPause)
	defer pause.Stop()
	for {
		events, first, missed, changed := e.log.after(e.number)
		if missed > 0 && !e.gap(missed) {
			return
		}
		for i := range events {
			e.number = first + uint64(i)
			if !e.send(&events[i]) {
				return
			}
		}
		if !e.sendExchanges() || e.out.Flush() != nil {
			return
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case exchange := <-e.wire:
			if !e.send(&exchange) {
				return
			}
		case <-pause.C:
			if !e.write(": \n\n") {
				return
			}
		case <-r.Context().Done():
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// sendExchanges sends at most exchangeTurn of the waiting exchanges.
func (e *eventReader) sendExchanges() bool {
	for range exchangeTurn {
		select {
		case exchange := <-e.wire:
			if !e.send(&exchange) {
				return false
			}
		default:
			return true
		}
	}
	return true
}

// gap sends an event that reports the loss of others.
func (e *eventReader) gap(missed uint64) bool {
	event := &adminEvent{Type: eventGap, Time: time.Now().UTC(), Missed: missed}
	return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", eventGap, mustMarshal(event)))
}

// send sends an event, unless the client selected other types.
func (e *eventReader) send(event *adminEvent) bool {
	if event.Type == eventGap {
		return e.gap(event.Missed)
	}
	if e.types != nil && !slices.Contains(e.types, event.Type) {
		return true
	}
	data, err := json.Marshal(event)
	if err != nil {
		return true // the detail is no JSON
	}
	if event.Type == eventExchange { // which a client cannot resume
		return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event.Type, data))
	}
	return e.write(fmt.Sprintf("id: %s-%d\nevent: %s\ndata: %s\n\n", e.log.boot, e.number, event.Type, data))
}

func (e *eventReader) write(text string) bool {
	_ = e.out.SetWriteDeadline(time.Now().Add(eventWriteTimeout)) // fails only in tests
	_, err := e.w.Write([]byte(text))
	return err == nil
}
