package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Bounds of request state.
const (
	// maxRequestState bounds the state that travels with the client in each round.
	maxRequestState = 64 << 10
	// maxStoredState bounds the state in a [StateStore]: several answers of the maximum size.
	maxStoredState = 16 << 20
)

// A StateStore stores request state that is too large to travel with the client. States are
// encrypted, so the store need not keep them secret. Replicas of a server share one store. Its
// methods must be safe for concurrent use.
type StateStore interface {
	// Put stores a state under a new key until it expires.
	Put(ctx context.Context, key string, state []byte, expires time.Time) error
	// Get returns the state of a key, or nil. A client may repeat a request, so a key may be read
	// more than once.
	Get(ctx context.Context, key string) ([]byte, error)
}

// A OnceStore is a [StateStore] that also remembers the used request states. With a OnceStore as
// [ServerOptions.StateStore], a server accepts each request state once. A client then cannot send
// an answer a second time, not even if the first response was lost. Implementations must be safe
// for concurrent use.
type OnceStore interface {
	StateStore
	// Once reports whether this is the first call with the key, among all replicas. It may delete the
	// key after the time expires. An error refuses the request.
	Once(ctx context.Context, key string, expires time.Time) (first bool, err error)
}

// errState is the error of a request state that was altered, expired, or belongs to another caller
// or request. All cases share a text, which reveals no reason to a client that made the state up.
var errState = Errorf(CodeInvalidParams,
	"params.requestState is not valid for this request or has expired; send the request again without it")

// A state contains the data that a call keeps from one round to the next. It travels with the
// client, sealed.
type state struct {
	Expires  int64                      `json:"expires,omitzero"`  // Unix milliseconds; unused in a detached call
	Progress *float64                   `json:"progress,omitzero"` // the last reported value
	Asked    map[string]digest          `json:"asked,omitempty"`   // the questions of this round
	Answers  map[string]answered        `json:"answers,omitempty"` // of earlier rounds
	Once     map[string]json.RawMessage `json:"once,omitempty"`    // results of functions
}

// An answered is an answer with its question.
type answered struct {
	Question digest          `json:"question"`
	Answer   json.RawMessage `json:"answer"`
}

func (s *state) changed(key string, asked digest) bool {
	if a, ok := s.Answers[key]; ok && a.Question != asked {
		return true
	}
	pending, ok := s.Asked[key]
	return ok && pending != asked
}

// begin resumes a call and returns its target and arguments. The key is the param of the target.
func (c *call) begin(key string) (target string, args json.RawMessage, err error) {
	p, err := parseTarget(c.req, key)
	if err != nil {
		return "", nil, err
	}
	return p.target, p.arguments, c.resume(p)
}

// resume allows questions, and restores the state and answers that the client sent. Spec:
// basic/patterns/mrtr (2026-07-28), Server Requirements.
func (c *call) resume(p targetParams) error {
	in := &c.input
	if d := c.req.detached; d != nil {
		responses, err := d.responses()
		if err != nil {
			return err
		}
		p.retry = &retryParams{responses, p.retry.state()}
	}
	in.begin(p)
	before, err := c.stateBefore(p)
	if before == nil || err != nil {
		return err
	}
	in.mu.Lock()
	in.state = &inputState{resumed: true, state: *before}
	in.mu.Unlock()
	if last := before.Progress; last != nil {
		c.progress.mu.Lock()
		c.progress.started, c.progress.last = true, *last
		c.progress.mu.Unlock()
	}
	return nil
}

func (c *call) stateBefore(p targetParams) (*state, error) {
	if d := c.req.detached; d != nil {
		return d.state()
	}
	sealed := p.retry.state()
	if sealed == nil {
		return nil, nil
	}
	token, err := unquoteAtMost(sealed, maxRequestState)
	if err != nil {
		return nil, errState
	}
	plain, err := c.openState(token, p)
	if err != nil {
		return nil, err
	}
	var before state
	if err := jsonv2.Unmarshal(plain, &before); err != nil {
		return nil, fmt.Errorf("request state: %w", err) // the seal is valid: another version of the server wrote it
	}
	if time.Now().UnixMilli() >= before.Expires {
		return nil, errState
	}
	if err := c.useState(token, time.UnixMilli(before.Expires)); err != nil {
		return nil, err
	}
	return &before, nil
}

// useState returns an error if the server uses a [OnceStore] and another call used the state.
// Middleware may start a handler several times with the state of its call.
func (c *call) useState(token string, expires time.Time) error {
	store, ok := c.server.opts.StateStore.(OnceStore)
	if !ok || c.input.used == token {
		return nil
	}
	digest := sha256.Sum256([]byte(token)) // a state is encoded as exactly this text
	first, err := store.Once(c, hex.EncodeToString(digest[:]), expires)
	switch {
	case err != nil:
		return fmt.Errorf("use of request state: %w", err)
	case !first:
		return errState
	}
	c.input.used = token
	return nil
}

// begin prepares the input for one run of a handler. Middleware may start several runs.
func (in *input) begin(p targetParams) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.begun, in.open, in.target, in.state = true, true, p, nil
}

func (c *call) asked() bool {
	c.input.mu.Lock()
	defer c.input.mu.Unlock()
	return c.input.state != nil && len(c.input.state.asked) > 0
}

// inputRequired returns the result that asks the client the handler's open questions, or nil if no
// question is open. No further questions can be asked.
func (c *call) inputRequired() (*InputRequiredResult, error) {
	in := &c.input
	in.mu.Lock()
	defer in.mu.Unlock()
	in.open = false
	t := in.state
	switch {
	case t == nil:
		return nil, nil
	case t.failed != nil:
		return nil, t.failed
	case len(t.asked) == 0:
		return nil, nil
	}
	next := t.state
	next.Asked = make(map[string]digest, len(t.asked))
	for key, q := range t.asked {
		next.Asked[key] = q.digest()
	}
	next.Progress = c.progress.told()
	if d := c.req.detached; d != nil {
		return &InputRequiredResult{InputRequests: t.asked}, d.keep(&next)
	}
	expires := time.Now().Add(c.server.opts.StateTTL)
	next.Expires = expires.UnixMilli()
	plain, err := jsonv2.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("request state: %w", err)
	}
	token, err := c.sealState(plain, expires)
	if err != nil {
		return nil, err
	}
	return &InputRequiredResult{InputRequests: t.asked, RequestState: token}, nil
}

func (p *progress) told() *float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return nil
	}
	return new(p.last)
}

// The first byte of a token's contents.
const (
	stateInline = '='
	stateStored = '>'
)

const minStateKey = seal.MinSecret

// ReplaceStateKeys replaces the keys of [ServerOptions.StateKeys] while the server serves. From now
// on the first key encrypts. To rotate keys, first add the new key behind the old key at all
// replicas, then move it to the front, and remove the old key after [ServerOptions.StateTTL]. On an
// error the keys do not change. It is safe for concurrent use.
func (s *Server) ReplaceStateKeys(keys [][]byte) error {
	if err := s.sealer.Replace(sealKeys(keys)...); err != nil {
		return fmt.Errorf("mcp: state keys: %w", err)
	}
	return nil
}

func sealKeys(secrets [][]byte) (keys []seal.Key) {
	for _, secret := range secrets {
		keys = append(keys, seal.Key{Secret: secret})
	}
	return keys
}

// newStateKeyRing returns a key ring with the given secrets, or with a random secret by default.
func newStateKeyRing(secrets [][]byte) *seal.KeyRing {
	r, err := seal.NewKeyRing("patchbay mcp state", sealKeys(secrets)...)
	if err != nil {
		panic("mcp: state keys: " + err.Error()) // validate checked their lengths before
	}
	return r
}

// sealState returns the token for the client: the sealed state, or its sealed key in the store.
func (c *call) sealState(plain []byte, expires time.Time) (string, error) {
	bound, err := c.stateBinding(c.input.target)
	if err != nil {
		return "", err
	}
	token := c.server.sealer.SealText(append([]byte{stateInline}, plain...), bound...)
	if len(token) <= maxRequestState {
		return token, nil
	}
	store := c.server.opts.StateStore
	if store == nil || len(token) > maxStoredState {
		return "", fmt.Errorf("request state is %d bytes long, too large to send without a state store",
			len(token))
	}
	key := rand.Text()
	stored := c.server.sealer.SealText(plain, append(bound, key)...)
	if err := store.Put(c, key, []byte(stored), expires); err != nil {
		return "", fmt.Errorf("store request state: %w", err)
	}
	return c.server.sealer.SealText(append([]byte{stateStored}, key...), bound...), nil
}

func (c *call) openState(token string, p targetParams) ([]byte, error) {
	bound, err := c.stateBinding(p)
	if err != nil {
		return nil, errState
	}
	plain, _, err := c.server.sealer.OpenText(token, bound...)
	if err != nil || len(plain) == 0 {
		return nil, errState
	}
	kind, plain := plain[0], plain[1:]
	if kind == stateInline {
		return plain, nil
	}
	store := c.server.opts.StateStore
	if store == nil {
		return nil, errState
	}
	key := string(plain)
	stored, err := store.Get(c, key)
	if err != nil {
		return nil, fmt.Errorf("stored request state: %w", err)
	}
	if plain, _, err = c.server.sealer.OpenText(string(stored), append(bound, key)...); err != nil {
		return nil, errState
	}
	return plain, nil
}

func (c *call) stateBinding(p targetParams) ([]string, error) {
	args := jsontext.Value(p.arguments).Clone()
	if args == nil {
		args = jsontext.Value("{}")
	}
	// A client repeats its arguments, but may decode and encode them in between. Numbers keep their
	// text: two numbers that differ beyond the precision of a float are different.
	err := args.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	digest := sha256.Sum256(args)
	name, caller := serverName(c.server.frame), c.req.Principal.Key()
	return []string{"state", name, caller, c.req.Method, p.target, string(digest[:])}, nil
}

// serverName returns the name in the `_meta` of a server without its version: a client may answer
// after an update.
func serverName(frame []byte) string {
	frame = append(append([]byte{'{'}, frame...), '}')
	info, _ := jsonscan.Get(frame, wire.MetaServerInfo)
	name, _ := jsonscan.Get(info, "name")
	return string(name)
}

// Once calls f in the first run of a handler and returns its result. In later runs, after the
// handler asked questions, it returns the result of the first run. Use it for side effects before
// an [Ask], and for values that change from run to run, such as random numbers and times.
//
// The key identifies the result within the handler, and must be used once in each run. T is encoded
// to JSON and decoded again, because the result travels with the client, encrypted. An error of f
// is not stored: the next run calls f again.
//
// Once holds within one chain of questions and answers. A client that sends a request twice, or
// answers a question twice, causes two calls of f. An effect that must never happen twice requires
// a record of its own.
func Once[T any](ctx context.Context, key string, f func(context.Context) (T, error)) (T, error) {
	var result T
	c := callFrom(ctx)
	if c == nil || c.server == nil {
		return f(ctx) // not in a handler, which may run again
	}
	raw, done, err := c.claim(key)
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
		c.input.store(key, raw)
	}
	var fresh T
	if err := schema.Decode(raw, &fresh); err != nil {
		return fresh, fmt.Errorf("mcp: once %q: %w", key, err)
	}
	return fresh, nil
}

// claim returns the stored result of the key, or reserves the key for the caller.
func (c *call) claim(key string) (result json.RawMessage, done bool, err error) {
	c.input.mu.Lock()
	defer c.input.mu.Unlock()
	if key == "" {
		return nil, false, errors.New("mcp: once: the key is empty")
	}
	t := c.input.ensureState()
	if t.onces[key] {
		return nil, false, c.misused("two calls of Once have the key %q: each needs its own", key)
	}
	put(&t.onces, key, true)
	result, done = t.state.Once[key]
	return result, done, nil
}

func (in *input) release(key string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.ensureState().onces, key)
}

func (in *input) store(key string, result json.RawMessage) {
	in.mu.Lock()
	defer in.mu.Unlock()
	put(&in.ensureState().state.Once, key, result)
}
