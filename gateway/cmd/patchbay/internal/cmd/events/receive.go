package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of the receiver of "events subscribe --listen", which strangers can reach. A message has at most 256 KiB.
const (
	receiveTimeout = 30 * time.Second // of a request
	idleTimeout    = 2 * time.Minute  // of a connection
	maxHeader      = 16 << 10         // bytes
	closeTimeout   = time.Second      // of the response to the last message
)

// errEnough ends the subscription of a command that received all events that it wants.
var errEnough = errors.New("all events were received")

// A receiver prints the messages of a subscription.
type receiver struct {
	*Options
	name string // of the event type
	stop context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below, and the output
	received int
	position string
	begun    bool
}

// receive serves the endpoint of a subscription until an interrupt, or until there are Count events. Then it
// unsubscribes.
func receive(outer context.Context, o *Options, c *mcp.Client) error {
	e, arguments, err := prepare(outer, o, c, "subscribe")
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(outer, "tcp", observe.WithLoopbackHost(o.Listen))
	if err != nil {
		return &exit.Error{Code: exit.Failure, Err: err}
	}
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	r := &receiver{Options: o, name: e.Name, stop: stop, position: o.Cursor}
	opts := o.webhook()
	opts.Receiver = webhook.NewReceiver(&webhook.ReceiverOptions{Logger: o.IO.Logger()})
	opts.Position, opts.Refreshed = r.moved, r.refreshed
	defer serveReceiver(l, opts.Receiver, stop)()
	o.IO.Err.Printf("receiving at: %s", l.Addr())
	err = webhook.Subscribe(ctx, c, e.Name, arguments, r.handle, opts)
	if cause := context.Cause(ctx); err == nil && outer.Err() == nil && !errors.Is(cause, errEnough) {
		err = cause // the listener or standard output failed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	showCursor(o.Factory, r.position)
	return err
}

// serveReceiver serves an endpoint, and returns a function that ends it. stop receives the failure of the listener.
func serveReceiver(l net.Listener, h http.Handler, stop context.CancelCauseFunc) (end func()) {
	server := &http.Server{Handler: h, ReadTimeout: receiveTimeout, WriteTimeout: receiveTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)} // errors of strangers are no problem
	served := make(chan struct{})
	go func() {
		defer close(served)
		stop(server.Serve(l))
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = server.Shutdown(ctx) // fails if a response takes longer
		_ = server.Close()
		<-served
	}
}

// handle prints a message. A message must be printed before it is accepted.
func (r *receiver) handle(_ context.Context, m *webhook.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.Count > 0 && r.received == r.Count:
		return errEnough
	case m.Type == webhook.TypeGap:
		r.IO.Err.Printf("patchbay: events may have been missed")
	case m.Event != nil:
		if err := showOne(r.Factory, m.Event, m.Cursor); err != nil {
			r.stop(err)
			return err
		}
		if r.received++; r.received == r.Count {
			r.position = cmp.Or(m.Cursor, r.position)
			r.stop(errEnough)
		}
	}
	return nil
}

func (r *receiver) moved(cursor string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position = cursor
}

// refreshed reports the first grant, and the news of later grants about deliveries.
func (r *receiver) refreshed(g *webhook.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		r.IO.Err.Printf("subscribed to: %s (%s)", term.CleanLine(r.name), term.CleanLine(g.ID))
	}
	r.begun = true
	showGrant(r.Factory, g)
}
