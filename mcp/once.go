package mcp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// Once returns what f gives, and runs f only the first time: when the handler runs again because it had asked something,
// the result of the first run is there. It is for effects that come before an [Ask], and for values that change from
// run to run, such as a random number or the time.
//
// The key names the result within the handler; it is used once in each run. T encodes to JSON and back, since the result
// travels with the client, sealed, and the handler gets what came back. An error of f is not remembered: the next
// run calls it again.
//
// Once holds along one chain of questions and answers. A client that sends a request twice, or answers one question
// twice, starts f twice: what must never happen again needs a record of its own.
func Once[T any](ctx context.Context, key string, f func(context.Context) (T, error)) (T, error) {
	var result T
	c := callFrom(ctx)
	if c == nil {
		return f(ctx) // nothing runs this code a second time
	}
	raw, done, err := c.input.claim(key)
	if err != nil {
		return result, err
	}
	if !done {
		result, err = f(ctx)
		if err != nil {
			c.input.release(key)
			return result, err
		}
		if raw, err = schema.Encode(result); err != nil {
			return result, fmt.Errorf("mcp: once %q: %w", key, err)
		}
		c.input.settle(key, raw)
	}
	var fresh T
	if err := schema.Decode(raw, &fresh); err != nil {
		return fresh, fmt.Errorf("mcp: once %q: %w", key, err)
	}
	return fresh, nil
}

// claim returns the result of an earlier run, or leaves the key to the caller.
func (in *input) claim(key string) (result stdjson.RawMessage, done bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if key == "" {
		return nil, false, errors.New("mcp: once: the key is empty")
	}
	t := in.talking()
	if t.onces[key] {
		t.failed = fmt.Errorf("mcp: once: the handler uses the key %q twice", key)
		return nil, false, t.failed
	}
	put(&t.onces, key, true)
	result, done = t.state.Once[key]
	return result, done, nil
}

// release returns back a key whose function failed.
func (in *input) release(key string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.talking().onces, key)
}

// settle keeps the result of a function for later runs.
func (in *input) settle(key string, result stdjson.RawMessage) {
	in.mu.Lock()
	defer in.mu.Unlock()
	put(&in.talking().state.Once, key, result)
}
