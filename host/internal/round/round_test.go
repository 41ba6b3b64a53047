package round_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func request(method, params string) *mcp.Request {
	return &mcp.Request{Method: method, Params: json.RawMessage(params)}
}

func TestStatesAreBoundToTheirRequest(t *testing.T) {
	s, err := round.NewSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	caller, other := &policy.Caller{}, &policy.Caller{Principal: &mcp.Principal{Subject: "b"}}
	text, err := s.Seal(caller, request("tools/call", `{"name":"buy","arguments":{"a":1,"b":2}}`), round.State{Server: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	same := request("tools/call", `{"arguments":{"b":2,"a":1},"name":"buy","inputResponses":{}}`)
	if st, err := s.Open(caller, same, text); err != nil || st.Server != "shop" {
		t.Errorf("the same request: %+v, %v", st, err)
	}
	for name, open := range map[string]func() (round.State, error){
		"another caller":   func() (round.State, error) { return s.Open(other, same, text) },
		"other arguments":  func() (round.State, error) { return s.Open(caller, request("tools/call", `{"name":"buy"}`), text) },
		"a changed text":   func() (round.State, error) { return s.Open(caller, same, text[1:]) },
		"an invented text": func() (round.State, error) { return s.Open(caller, same, "x") },
	} {
		if st, err := open(); !errors.Is(err, round.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
	long := strings.Repeat("x", 64<<10)
	if _, err := s.Seal(caller, same, round.State{State: &long}); err == nil {
		t.Error("a state that clients do not accept was sealed")
	}
}

func TestCursorsContinueWithTheNextServer(t *testing.T) {
	s, err := round.NewSealer(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := round.Cursors{Ring: s.Ring, Bound: []string{"skills"}}
	open := func(cursor string) round.Cursor {
		at, err := c.Open(request("skills/list", `{"cursor":"`+cursor+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	servers := []string{"a", "b"}
	if at := open(c.After(servers, round.Cursor{}, []byte(`{"nextCursor":"n"}`))); at != (round.Cursor{Server: "a", Cursor: "n", Page: 1}) {
		t.Errorf("after a page: %+v", at)
	}
	if at := open(c.After(servers, round.Cursor{}, []byte(`{}`))); at != (round.Cursor{Server: "b"}) {
		t.Errorf("after the last page of a server: %+v", at)
	}
	if at := open(c.After(servers, round.Cursor{Page: 199}, []byte(`{"nextCursor":"n"}`))); at != (round.Cursor{Server: "b"}) {
		t.Errorf("after too many pages of a server: %+v", at)
	}
	if cursor := c.After(servers[1:], round.Cursor{}, []byte(`{}`)); cursor != "" {
		t.Errorf("after the last server: %q", cursor)
	}
	another := round.Cursors{Ring: s.Ring, Bound: []string{"tasks"}}
	_, err = another.Open(request("tasks/list", `{"cursor":"`+c.After(servers, round.Cursor{}, nil)+`"}`))
	if !errors.Is(err, round.ErrInvalidCursor) {
		t.Errorf("the cursor of another list: %v", err)
	}
}
