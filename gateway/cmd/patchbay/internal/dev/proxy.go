// Package dev runs a server under development between a client and changes of its files: a proxy of
// JSON-RPC messages that starts the server again and keeps the client's connection.
//
// In a session the proxy repeats the client's initialize, log level and subscriptions to each new
// process. In the modern era it repeats the open subscriptions. It then announces that all lists may
// have changed.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxHeld bounds the messages that wait for the server to start, and those that wait for a
	// client or server to read.
	maxHeld = 1000
	// maxNoted bounds the subscriptions that are repeated: a client that has more is not one that a
	// person develops with.
	maxNoted = 1000
)

// Options configures [Run].
type Options struct {
	// Client is the connection to the client.
	Client mcp.Conn
	// Start starts the server. It may block.
	Start func() (mcp.Conn, error)
	// Changes has a word for each restart, such as the name of a changed file.
	Changes <-chan string
	// Log writes a line. Text of client and server in it is not cleaned.
	Log func(line string)
}

// Run forwards messages until the client closes its connection or ctx ends. The end of the server
// does not end it.
func Run(ctx context.Context, opts Options) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &proxy{opts: opts, ctx: ctx, events: make(chan event), began: map[jsonrpc.ID]*pending{},
		asked: map[jsonrpc.ID]jsonrpc.ID{}, replays: map[jsonrpc.ID]string{}}
	defer p.end(cancel)
	p.client = p.newQueue(opts.Client)
	p.goRead(opts.Client, 0)
	p.start("")
	for {
		select {
		case <-ctx.Done():
			return nil
		case name, ok := <-opts.Changes:
			if !ok {
				opts.Changes = nil
				continue
			}
			p.start(name)
		case e := <-p.events:
			if done, err := p.handle(e); done {
				return err
			}
		}
	}
}

// An event is what a goroutine reports to the loop of [Run].
type event struct {
	generation int // of the server; 0 for the client
	message    *jsonrpc.Message
	err        error
	isStart    bool     // the server has started, or has not, for the reason err
	conn       mcp.Conn // of the server that has started
}

// A pending request of the client waits for its response.
type pending struct {
	request      *jsonrpc.Message
	since        time.Time
	acknowledged bool // of a subscription: the client has its acknowledgment
}

// States of the server.
type state int

const (
	starting state = iota // it has not started, or not answered the repeated initialize
	ready
	stopped // it has exited and waits for a change
	crashed // it has exited after it was ready, and starts again with the next request
)

// A proxy belongs to the goroutine of [Run].
type proxy struct {
	opts   Options
	ctx    context.Context
	events chan event
	work   sync.WaitGroup // of all goroutines

	client     *queue
	server     *queue   // nil before the process has started
	conn       mcp.Conn // of the server
	generation int
	state      state
	isStarting bool   // a goroutine starts the server
	again      string // a change that came meanwhile
	why        string // why the server is stopped
	answered   bool   // the process has sent a message
	count      int    // of the ids that the proxy has made

	initialize  *jsonrpc.Message // of the client; nil in the modern era
	initialized *jsonrpc.Message // nil before it
	declared    []byte           // capabilities of the first process
	level       *jsonrpc.Message // the last logging/setLevel
	resources   []*jsonrpc.Message
	held        []*jsonrpc.Message        // of the client, for the server
	began       map[jsonrpc.ID]*pending   // requests of the client that the server has
	asked       map[jsonrpc.ID]jsonrpc.ID // requests of the server: the client's id to that of the server
	replays     map[jsonrpc.ID]string     // methods of repeated requests, which the client does not see
}

func (p *proxy) logf(format string, args ...any) { p.opts.Log(fmt.Sprintf(format, args...)) }

// send reports an event, unless Run has ended.
func (p *proxy) send(e event) bool {
	select {
	case p.events <- e:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// goRead reads messages in a goroutine, which ends with the connection.
func (p *proxy) goRead(conn mcp.Conn, generation int) {
	p.work.Go(func() {
		for {
			m, err := conn.Read(p.ctx)
			var malformed *jsonrpc.DecodeError
			isFatal := err != nil && !errors.As(err, &malformed)
			if !p.send(event{generation: generation, message: m, err: err}) || isFatal {
				return
			}
		}
	})
}

// A queue writes messages to a connection in a goroutine of its own, so that a side that does not
// read does not block the other.
type queue struct{ messages chan *jsonrpc.Message }

func (p *proxy) newQueue(conn mcp.Conn) *queue {
	q := &queue{make(chan *jsonrpc.Message, maxHeld)}
	p.work.Go(func() { // ends with the queue
		failed := false
		for m := range q.messages {
			failed = failed || conn.Write(p.ctx, m) != nil // the reader reports the end
		}
	})
	return q
}

// put adds a message. It drops messages if the queue is full: the other side has stopped reading.
func (q *queue) put(m *jsonrpc.Message) {
	select {
	case q.messages <- m:
	default:
	}
}

// end ends the goroutines and the server.
func (p *proxy) end(cancel context.CancelFunc) {
	cancel()
	close(p.client.messages)
	if p.server != nil {
		close(p.server.messages)
	}
	if p.conn != nil {
		_ = p.conn.Close() // this process is about to exit
	}
	_ = p.opts.Client.Close()
	p.work.Wait()
}

// handle handles an event. It reports whether the proxy has to end.
func (p *proxy) handle(e event) (done bool, err error) {
	var malformed *jsonrpc.DecodeError
	switch {
	case e.isStart:
		p.started(e.conn, e.err)
	case e.generation != 0 && e.generation != p.generation: // of a process that was replaced
	case errors.As(e.err, &malformed):
		if e.generation != 0 {
			p.logf("← invalid message of the server: %v", malformed)
		} else if response := malformed.Response(); response != nil {
			p.client.put(response)
		}
	case e.err != nil && e.generation != 0:
		p.exited(e.err)
	case errors.Is(e.err, io.EOF):
		return true, nil
	case e.err != nil:
		return true, fmt.Errorf("the connection of the client: %w", e.err)
	default:
		for _, m := range elements(e.message) {
			if e.generation == 0 {
				p.fromClient(m)
			} else {
				p.fromServer(m)
			}
		}
	}
	return false, nil
}

// elements returns the valid messages of a batch, or the message itself.
func elements(m *jsonrpc.Message) []*jsonrpc.Message {
	if m.Batch == nil {
		return []*jsonrpc.Message{m}
	}
	var all []*jsonrpc.Message
	for _, one := range m.Batch {
		if one.Kind() != jsonrpc.Invalid {
			all = append(all, one)
		}
	}
	return all
}

func (p *proxy) newID() jsonrpc.ID {
	p.count++
	return jsonrpc.StringID(fmt.Sprintf("patchbay-dev-%d", p.count))
}
