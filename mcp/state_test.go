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

// refusedState is the one text for every state that is not taken.
const refusedState = "params.requestState is not valid for this request or has expired; send the request again without it"

func wantRefused(t testing.TB, what string, r reply) {
	t.Helper()
	if r.Err == nil || r.Err.Code != mcp.CodeInvalidParams || r.Err.Message != refusedState || r.Err.Data != nil {
		t.Errorf("%s: got %+v", what, r)
	}
}

var adaAnswers = `{"a":` + accept(`{"name":"Ada"}`) + `}`

func TestMRTR13_AStateIsForOneCallerAndRequest(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte("k"), 32)}
	serve := func(name string) *mcp.Server {
		s := mcp.NewServer(name, "1", &mcp.ServerOptions{StateKeys: keys})
		for _, tool := range []string{"t", "u"} {
			mcp.AddTool(s, &mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, greet)
		}
		mcp.AddPrompt(s, &mcp.Prompt{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) { return greet(ctx, nil) })
		return s
	}
	ada := &mcp.Principal{Issuer: "https://as.example", Subject: "ada", ClientID: "c"}
	p := &peer{TB: t, handler: serve("one"), principal: ada}
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
		"nobody":          nil,
		"another user":    {Issuer: "https://as.example", Subject: "bob", ClientID: "c"},
		"another issuer":  {Issuer: "https://evil.example", Subject: "ada", ClientID: "c"},
		"another client":  {Issuer: "https://as.example", Subject: "ada", ClientID: "d"},
		"a shifted split": {Issuer: "https://as.examplea", Subject: "da", ClientID: "c"},
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
		t.Errorf("the same arguments in other words: got %+v", r)
	}
	other.handler = serve("one")
	if r := other.call("t", args, adaAnswers, state); r.text() != "Ada" {
		t.Errorf("MRTR-21, a replica: got %+v", r)
	}
}

func TestMRTR13_AbsentAndEmptyArgumentsAreAlike(t *testing.T) {
	p := handle(t, nil, greet)
	state := p.call("t", "", "", "").RequestState
	if r := p.call("t", "{}", adaAnswers, state); r.text() != "Ada" {
		t.Errorf("got %+v", r)
	}
}

func TestMRTR12_AStateThatWasTouchedIsRefused(t *testing.T) {
	p := handle(t, nil, greet)
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
		t.Errorf("untouched: got %+v", r)
	}
}

func FuzzRequestState(f *testing.F) {
	// The key is new in each process: a state that an earlier run left in the corpus is then a foreign one.
	p := handle(f, nil, greet)
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
		var sent string // what is left of it: JSON is UTF-8
		if json.Unmarshal(encoded, &sent) != nil || sent == "" || sent == state {
			return
		}
		p := *p
		p.TB = t
		wantRefused(t, sent, p.call("t", "", adaAnswers, sent))
	})
}

func TestMRTR13_AStateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := handle(t, &mcp.ServerOptions{StateTTL: time.Minute}, greet)
		state := p.call("t", "", "", "").RequestState
		time.Sleep(time.Minute - time.Millisecond)
		again := p.call("t", "", "", state)
		if again.ResultType != "input_required" {
			t.Fatalf("in time: got %+v", again)
		}
		time.Sleep(time.Millisecond)
		wantRefused(t, "late", p.call("t", "", adaAnswers, state))
		if r := p.call("t", "", adaAnswers, again.RequestState); r.text() != "Ada" {
			t.Errorf("a later round has its own time: got %+v", r)
		}
	})
}

func TestMRTR12_KeysCanBeRotated(t *testing.T) {
	key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
	serve := func(keys ...[]byte) *peer { return handle(t, &mcp.ServerOptions{StateKeys: keys}, greet) }
	old := serve(key('1')).call("t", "", "", "").RequestState
	if r := serve(key('2'), key('1')).call("t", "", adaAnswers, old); r.text() != "Ada" {
		t.Errorf("the previous key: got %+v", r)
	}
	fresh := serve(key('2'), key('1')).call("t", "", "", "").RequestState
	if r := serve(key('2')).call("t", "", adaAnswers, fresh); r.text() != "Ada" {
		t.Errorf("the current key: got %+v", r)
	}
	wantRefused(t, "a key that is gone", serve(key('2')).call("t", "", adaAnswers, old))
	wantRefused(t, "a key of its own", handle(t, nil, greet).call("t", "", adaAnswers, old))
}

func TestMRTR12_TheStateHidesWhatItHolds(t *testing.T) {
	p := handle(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		if _, err := mcp.Once(ctx, "a", func(context.Context) (string, error) { return "hush-hush", nil }); err != nil {
			return "", err
		}
		return greet(ctx, nil)
	})
	one, two := p.call("t", "", "", "").RequestState, p.call("t", "", "", "").RequestState
	if strings.Contains(one, "hush") || strings.Contains(one, "aHVzaC1odXNo") {
		t.Errorf("the state can be read: %s", one)
	}
	if one == two {
		t.Error("two states of one content are equal")
	}
}

// A memory is a store for state; broken ones fail.
type memory struct {
	mu      sync.Mutex
	states  map[string][]byte
	expires time.Time
	broken  bool
}

func (m *memory) Put(_ context.Context, key string, state []byte, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return errors.New("disk full")
	}
	m.states[key], m.expires = state, expires
	return nil
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return nil, errors.New("disk gone")
	}
	return m.states[key], nil
}

// hoard keeps n bytes in its state.
func hoard(n int) func(ctx context.Context, args json.RawMessage) (string, error) {
	return func(ctx context.Context, args json.RawMessage) (string, error) {
		kept, err := mcp.Once(ctx, "a", func(context.Context) (string, error) { return strings.Repeat("x", n), nil })
		if err != nil {
			return "", err
		}
		if _, err := greet(ctx, args); err != nil {
			return "", err
		}
		return strings.Trim(kept, "x") + "kept", nil
	}
}

func TestR72_AStateThatIsTooLargeToTravelGoesToTheStore(t *testing.T) {
	store := &memory{states: map[string][]byte{}}
	p := handle(t, &mcp.ServerOptions{StateStore: store, StateTTL: time.Hour, Logger: quiet()}, hoard(100_000))
	r := p.call("t", "", "", "")
	if r.ResultType != "input_required" || len(r.RequestState) > 200 || len(store.states) != 1 {
		t.Fatalf("got %+v and %d stored states", r, len(store.states))
	}
	if left := time.Until(store.expires); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it is kept for %v", left)
	}
	for _, state := range store.states {
		if bytes.Contains(state, bytes.Repeat([]byte("x"), 16)) { // Base64 has four by chance
			t.Error("the store can read it")
		}
	}
	if r := p.call("t", "", adaAnswers, r.RequestState); r.text() != "kept" {
		t.Errorf("then: got %+v", r)
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
	wantRefused(t, "a state that was forgotten", p.call("t", "", adaAnswers, r.RequestState))

	store.broken = true
	for what, r := range map[string]reply{"put": p.call("t", "", "", ""), "get": p.call("t", "", adaAnswers, r.RequestState)} {
		if r.Err == nil || r.Err.Code != mcp.CodeInternalError || r.Err.Message != "internal error" {
			t.Errorf("a broken store, %s: got %+v", what, r)
		}
	}
}

func TestR72_TheStateThatTravelsIsBounded(t *testing.T) {
	log := &bytes.Buffer{}
	largest := 0
	for _, n := range []int{48_500, 48_800, 49_000, 49_200} {
		p := handle(t, &mcp.ServerOptions{Logger: textLog(log)}, hoard(n))
		r := p.call("t", "", "", "")
		if r.Err != nil {
			if r.Err.Message != "internal error" || !strings.Contains(log.String(), "set ServerOptions.StateStore") {
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
		t.Errorf("the largest state had %d bytes", largest)
	}
}
