package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func textLog(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestOnceRunsOncePerRequest(t *testing.T) {
	type release struct {
		ID   int      `json:"id"`
		Tags []string `json:"tags"`
	}
	runs := 0
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		r, err := mcp.Once(ctx, "release", func(context.Context) (release, error) {
			runs++
			return release{ID: runs}, nil
		})
		if err != nil {
			return "", err
		}
		for _, key := range []string{"a", "b"} {
			if _, err := mcp.Ask[bool](ctx, key, fmt.Sprintf("Deploy %d?", r.ID), nil); err != nil {
				return "", err
			}
		}
		return fmt.Sprint(r.ID, r.Tags == nil), nil
	})
	yes := acceptJSON(`{"value":true}`)
	first := p.call("t", "", "", "")
	r := p.call("t", "", `{"a":`+yes+`}`, first.RequestState)
	r = p.call("t", "", `{"b":`+yes+`}`, r.RequestState)
	if r.text() != "1 false" || runs != 1 {
		t.Errorf("got %+v after %d runs, want \"1 false\" after 1", r, runs)
	}
	if p.call("t", "", "", ""); runs != 2 {
		t.Errorf("second request: got %d runs in all, want 2", runs)
	}
}

func TestOnceReturnsTheSameValueInEachRun(t *testing.T) {
	type value struct {
		Shown  int `json:"shown"`
		hidden int
	}
	var seen []value
	p := newHandlerPeer(t, nil, func(ctx context.Context, args json.RawMessage) (string, error) {
		v, err := mcp.Once(ctx, "v", func(context.Context) (value, error) { return value{1, 2}, nil })
		if err != nil {
			return "", err
		}
		seen = append(seen, v)
		return askName(ctx, args)
	})
	r := p.call("t", "", "", "")
	p.call("t", "", adaAnswers, r.RequestState)
	if len(seen) != 2 || seen[0] != seen[1] || seen[0] != (value{Shown: 1}) {
		t.Errorf("got %+v, want {Shown:1} twice", seen)
	}
}

func TestOnceRunsAgainAfterAnError(t *testing.T) {
	runs := 0
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		for {
			n, err := mcp.Once(ctx, "n", func(context.Context) (int, error) {
				if runs++; runs < 3 {
					return 0, errors.New("not yet")
				}
				return runs, nil
			})
			if err == nil {
				return fmt.Sprint(n), nil
			}
		}
	})
	if r := p.call("t", "", "", ""); r.text() != "3" {
		t.Errorf("got %+v, want the text \"3\"", r)
	}
}

func TestOnceMayAskTheUser(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		name, err := mcp.Once(ctx, "name", func(ctx context.Context) (string, error) { return askName(ctx, nil) })
		if err != nil {
			return "", err
		}
		_, err = mcp.Ask[bool](ctx, "b", "Sure?", nil)
		return name, err
	})
	r := p.call("t", "", "", "")
	r = p.call("t", "", adaAnswers, r.RequestState)
	if r = p.call("t", "", `{"b":`+acceptJSON(`{"value":true}`)+`}`, r.RequestState); r.text() != "Ada" {
		t.Errorf("got %+v, want the text \"Ada\"", r)
	}
}

func TestMisuseOfOnceIsReported(t *testing.T) {
	one := func(context.Context) (int, error) { return 1, nil }
	for name, f := range map[string]func(ctx context.Context) error{
		"calls of Once": func(ctx context.Context) error {
			_, _ = mcp.Once(ctx, "k", one)
			_, _ = mcp.Once(ctx, "k", one)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := &bytes.Buffer{}
			p := newHandlerPeer(t, &mcp.ServerOptions{Logger: textLog(log)},
				func(ctx context.Context, _ json.RawMessage) (string, error) { return "", f(ctx) })
			r := p.call("t", "", "", "")
			if r.Err == nil || r.Err.Code != mcp.CodeInternalError || !strings.Contains(log.String(), name) {
				t.Errorf("got %+v, want an internal error; want %q in the log:\n%s", r, name, log)
			}
		})
	}
	for name, f := range map[string]func(ctx context.Context) error{
		"empty": func(ctx context.Context) error { _, err := mcp.Once(ctx, "", one); return err },
		"JSON": func(ctx context.Context) error {
			_, err := mcp.Once(ctx, "k", func(context.Context) (func(), error) { return func() {}, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
				if f(ctx) == nil {
					return "no error", nil
				}
				return "error", nil
			})
			if r := p.call("t", "", "", ""); r.text() != "error" {
				t.Errorf("got %+v, want an error from Once", r)
			}
		})
	}
}

func TestOnceOutsideAHandlerCallsTheFunction(t *testing.T) {
	for range 2 {
		if n, err := mcp.Once(t.Context(), "k", func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("got %d, %v, want 7", n, err)
		}
	}
}
