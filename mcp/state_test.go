package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// refusedState is the error message for every state that is refused.
const refusedState = "params.requestState is not valid for this request or has expired; send the request again without it"

func wantRefused(t testing.TB, what string, r reply) {
	t.Helper()
	if r.Err == nil || r.Err.Code != mcp.CodeInvalidParams || r.Err.Message != refusedState || r.Err.Data != nil {
		t.Errorf("%s: got %+v", what, r)
	}
}

var adaAnswers = `{"a":` + acceptJSON(`{"name":"Ada"}`) + `}`

// Requirement: MRTR-13, MRTR-21, SEC-11
func TestStateIsBoundToCallerAndRequest(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte("k"), 32)}
	serve := func(name string) *mcp.Server {
		s := mcp.NewServer(name, "1", &mcp.ServerOptions{StateKeys: keys})
		for _, tool := range []string{"t", "u"} {
			mcp.AddTool(s, &mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, askName)
		}
		mcp.AddPrompt(s, &mcp.Prompt{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) { return askName(ctx, nil) })
		return s
	}
	ada := &mcp.Principal{Issuer: "https://as.example", Subject: "ada", ClientID: "c"}
	p := &handlerPeer{TB: t, handler: serve("one"), principal: ada}
	const args = `{"to":"prod","n":9007199254740993}`
	state := p.call("t", args, "", "").RequestState

	wantRefused(t, "another tool", p.call("u", args, adaAnswers, state))
	wantRefused(t, "another method", p.send("prompts/get", "name", "t", "inputResponses", json.RawMessage(adaAnswers), "requestState", state))
	for what, other := range map[string]string{
		"other arguments":                  `{"to":"test","n":9007199254740993}`,
		"a number beyond float precision":  `{"to":"prod","n":9007199254740992}`,
		"an argument more":                 `{"to":"prod","n":9007199254740993,"x":1}`,
		"no arguments":                     "",
		"an argument that is text instead": `{"to":"prod","n":"9007199254740993"}`,
	} {
		wantRefused(t, what, p.call("t", other, adaAnswers, state))
	}
	for what, other := range map[string]*mcp.Principal{
		"no user":                  nil,
		"another user":             {Issuer: "https://as.example", Subject: "bob", ClientID: "c"},
		"another issuer":           {Issuer: "https://evil.example", Subject: "ada", ClientID: "c"},
		"another client":           {Issuer: "https://as.example", Subject: "ada", ClientID: "d"},
		"shifted field boundaries": {Issuer: "https://as.examplea", Subject: "da", ClientID: "c"},
	} {
		q := *p
		q.principal = other
		wantRefused(t, what, q.call("t", args, adaAnswers, state))
	}
	other := *p
	other.handler = serve("two")
	wantRefused(t, "another server", other.call("t", args, adaAnswers, state))

	ada.Scopes = []string{"more"}
	if r := p.call("t", ` { "n" : 9007199254740993 , "\u0074o" : "prod" } `, adaAnswers, state); r.text() != "Ada" {
		t.Errorf("the same arguments encoded differently: got %+v, want \"Ada\"", r)
	}
	other.handler = serve("one")
	if r := other.call("t", args, adaAnswers, state); r.text() != "Ada" {
		t.Errorf("a replica: got %+v, want \"Ada\"", r)
	}
}

// Requirement: MRTR-13
func TestAbsentAndEmptyArgumentsAreEqual(t *testing.T) {
	p := newHandlerPeer(t, nil, askName)
	state := p.call("t", "", "", "").RequestState
	if r := p.call("t", "{}", adaAnswers, state); r.text() != "Ada" {
		t.Errorf("got %+v", r)
	}
}

// Requirement: MRTR-12
func TestModifiedStateIsRefused(t *testing.T) {
	p := newHandlerPeer(t, nil, askName)
	state := p.call("t", "", "", "").RequestState
	for i := range len(state) {
		for bit := range 8 {
			touched := []byte(state)
			touched[i] ^= 1 << bit
			if touched[i] < 0x80 {
				wantRefused(t, string(touched), p.call("t", "", adaAnswers, string(touched)))
			}
		}
	}
	for _, touched := range []string{
		state + "-TAMPERED", state + "=", state + "A", state + "\n", "\r\n" + state, " " + state, state[:len(state)-1], state[1:],
		state[:20] + "\n" + state[20:], strings.ToUpper(state), state + state, "A", "AAAA", "AAAAAAAA", "null", strings.Repeat("A", 64<<10+1),
	} {
		wantRefused(t, touched, p.call("t", "", adaAnswers, touched))
	}
	if r := p.call("t", "", adaAnswers, state); r.text() != "Ada" {
		t.Errorf("unmodified state: got %+v, want \"Ada\"", r)
	}
}

func FuzzRequestState(f *testing.F) {
	// The key is new in each process, so states in the corpus are foreign.
	p := newHandlerPeer(f, nil, askName)
	state := p.call("t", "", "", "").RequestState
	f.Add(state, uint(0), byte(1))
	f.Add("", uint(5), byte(0))
	f.Add(state+"\n", uint(0), byte(0))
	f.Add(strings.Repeat("A", 100), uint(3), byte(64))
	f.Fuzz(func(t *testing.T, token string, at uint, flip byte) {
		touched := []byte(token)
		if len(touched) > 0 {
			touched[at%uint(len(touched))] ^= flip
		}
		encoded, _ := json.Marshal(string(touched))
		var sent string // with invalid UTF-8 replaced
		if json.Unmarshal(encoded, &sent) != nil || sent == "" || sent == state {
			return
		}
		p := *p
		p.TB = t
		wantRefused(t, sent, p.call("t", "", adaAnswers, sent))
	})
}

// Requirement: MRTR-13
func TestStateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newHandlerPeer(t, &mcp.ServerOptions{StateTTL: time.Minute}, askName)
		state := p.call("t", "", "", "").RequestState
		time.Sleep(time.Minute - time.Millisecond)
		again := p.call("t", "", "", state)
		if again.ResultType != "input_required" {
			t.Fatalf("in time: got %+v", again)
		}
		time.Sleep(time.Millisecond)
		wantRefused(t, "late", p.call("t", "", adaAnswers, state))
		if r := p.call("t", "", adaAnswers, again.RequestState); r.text() != "Ada" {
			t.Errorf("state of a later round: got %+v, want \"Ada\"", r)
		}
	})
}

// Requirement: MRTR-12
func TestKeysCanBeRotated(t *testing.T) {
	key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
	serve := func(keys ...[]byte) *handlerPeer {
		return newHandlerPeer(t, &mcp.ServerOptions{StateKeys: keys}, askName)
	}
	old := serve(key('1')).call("t", "", "", "").RequestState
	if r := serve(key('2'), key('1')).call("t", "", adaAnswers, old); r.text() != "Ada" {
		t.Errorf("the previous key: got %+v", r)
	}
	fresh := serve(key('2'), key('1')).call("t", "", "", "").RequestState
	if r := serve(key('2')).call("t", "", adaAnswers, fresh); r.text() != "Ada" {
		t.Errorf("the current key: got %+v", r)
	}
	wantRefused(t, "a removed key", serve(key('2')).call("t", "", adaAnswers, old))
	wantRefused(t, "another key", newHandlerPeer(t, nil, askName).call("t", "", adaAnswers, old))
}

// Requirement: MRTR-12
func TestStateIsEncrypted(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		if _, err := mcp.Once(ctx, "a", func(context.Context) (string, error) { return "hush-hush", nil }); err != nil {
			return "", err
		}
		return askName(ctx, nil)
	})
	one, two := p.call("t", "", "", "").RequestState, p.call("t", "", "", "").RequestState
	if strings.Contains(one, "hush-hush") || strings.Contains(one, "aHVzaC1odXNo") {
		t.Errorf("got readable state %s", one)
	}
	if one == two {
		t.Error("got equal states for equal content")
	}
}

// A stateStore keeps states in memory. It returns errors while broken is set.
type stateStore struct {
	mu      sync.Mutex
	states  map[string][]byte
	expires time.Time
	broken  bool
}

func (m *stateStore) Put(_ context.Context, key string, state []byte, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return errors.New("disk full")
	}
	m.states[key], m.expires = state, expires
	return nil
}

func (m *stateStore) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return nil, errors.New("disk gone")
	}
	return m.states[key], nil
}

// askWithState returns a tool that keeps n bytes in its state and asks the user.
func askWithState(n int) func(ctx context.Context, args json.RawMessage) (string, error) {
	return func(ctx context.Context, args json.RawMessage) (string, error) {
		kept, err := mcp.Once(ctx, "a", func(context.Context) (string, error) { return strings.Repeat("x", n), nil })
		if err != nil {
			return "", err
		}
		if _, err := askName(ctx, args); err != nil {
			return "", err
		}
		return strings.Trim(kept, "x") + "kept", nil
	}
}

func TestLargeStatesAreKeptInTheStateStore(t *testing.T) {
	store := &stateStore{states: map[string][]byte{}}
	p := newHandlerPeer(t, &mcp.ServerOptions{StateStore: store, StateTTL: time.Hour, Logger: discardLogger()}, askWithState(100_000))
	r := p.call("t", "", "", "")
	if r.ResultType != "input_required" || len(r.RequestState) > 200 || len(store.states) != 1 {
		t.Fatalf("got %+v and %d stored states, want a short requestState and 1", r, len(store.states))
	}
	if left := time.Until(store.expires); left > time.Hour || left < 50*time.Minute {
		t.Errorf("stored for %v, want about an hour", left)
	}
	for _, state := range store.states {
		if bytes.Contains(state, bytes.Repeat([]byte("x"), 16)) { // Base64 has four by chance
			t.Error("the stored state is not encrypted")
		}
	}
	if r := p.call("t", "", adaAnswers, r.RequestState); r.text() != "kept" {
		t.Errorf("retry: got %+v, want \"kept\"", r)
	}
	wantRefused(t, "another request", p.call("t", `{"x":1}`, adaAnswers, r.RequestState))

	again := p.call("t", "", "", "")
	var swapped []byte
	for key, state := range store.states { // two states under each other's keys
		swapped, store.states[key] = state, swapped
	}
	for key, state := range store.states {
		if state == nil {
			store.states[key] = swapped
		}
	}
	wantRefused(t, "a state under another key", p.call("t", "", adaAnswers, again.RequestState))
	clear(store.states)
	wantRefused(t, "a deleted state", p.call("t", "", adaAnswers, r.RequestState))

	store.broken = true
	for what, r := range map[string]reply{"put": p.call("t", "", "", ""), "get": p.call("t", "", adaAnswers, r.RequestState)} {
		if r.Err == nil || r.Err.Code != mcp.CodeInternalError || r.Err.Message != "internal error" {
			t.Errorf("%s error of the store: got %+v, want an internal error", what, r)
		}
	}
}

func TestSizeOfRequestStateIsLimited(t *testing.T) {
	log := &bytes.Buffer{}
	largest := 0
	for _, n := range []int{48_500, 48_800, 49_000, 49_200} {
		p := newHandlerPeer(t, &mcp.ServerOptions{Logger: textLog(log)}, askWithState(n))
		r := p.call("t", "", "", "")
		if r.Err != nil {
			if r.Err.Message != "internal error" || !strings.Contains(log.String(), "without a state store") {
				t.Errorf("%d bytes: got %+v, log %s", n, r, log)
			}
			continue
		}
		largest = max(largest, len(r.RequestState))
		if r := p.call("t", "", adaAnswers, r.RequestState); r.text() != "kept" {
			t.Errorf("%d bytes: got %+v", n, r)
		}
	}
	if largest > 64<<10 || largest < 63<<10 {
		t.Errorf("got a largest state of %d bytes, want 63 to 64 KiB", largest)
	}
}
