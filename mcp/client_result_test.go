package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const emptyContent = `{"resultType":"complete","content":[]}`

// Errors of the client and of its functions are not errors that the server responded with.
//
// Requirement: RPC-30
func TestLocalErrorsAreNotRemote(t *testing.T) {
	remote := errors.New("unset")
	opts := &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, remote }}
	method := "sampling/createMessage"
	c := newScriptedClient(t, opts, func(context.Context, *mcp.Request) (string, error) {
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"` + method + `","params":{}}}}`, nil
	})
	_, err := c.CallTool(t.Context(), "x", nil)
	var protocolErr *mcp.Error
	if errors.As(err, &protocolErr) || !errors.Is(err, mcp.ErrInvalidResult) || !mayHaveRun(t, err) {
		t.Errorf("undeclared input request: got %v, want ErrInvalidResult", err)
	}
	// Roots may return the error of another server.
	method = "roots/list"
	m, _ := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"elsewhere"}}`))
	remote = m.Error
	_, err = c.CallTool(t.Context(), "x", nil)
	if errors.As(err, &protocolErr) || !strings.Contains(fmt.Sprint(err), "elsewhere") {
		t.Errorf("error of another server: got %v, want its text and no protocol error", err)
	}
	remote = io.ErrUnexpectedEOF
	if _, err = c.CallTool(t.Context(), "x", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error of Roots: got %v, want %v", err, remote)
	}
}

// Pages of invalid items have the same limits as others. They cause a limited number of log
// messages.
func TestInvalidListItemsCountTowardsTheLimits(t *testing.T) {
	for name, page := range map[string]string{
		"bytes": `{"tools":[],"junk":"` + strings.Repeat("x", 8<<20) + `","nextCursor":"%d"}`,
		"items": `{"tools":[` + strings.Repeat("0,", 50_000) + `0],"nextCursor":"%d"}`,
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			var logged lineCounter
			h := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "server/discover" {
					return mcp.RawResult(discovered), nil
				}
				pages++
				return mcp.RawResult(fmt.Sprintf(page, pages)), nil
			})
			opts := &mcp.ClientOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))}
			c, err := mcp.Connect(t.Context(), mcp.InMemory(h), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var last error
			for _, err := range c.Tools(t.Context()) {
				last = err
			}
			if !errors.Is(last, mcp.ErrInvalidResult) || pages > 9 || logged > 10_100 {
				t.Errorf("got error %v after %d pages and %d log lines, want ErrInvalidResult", last, pages, logged)
			}
		})
	}
}

type lineCounter int

func (n *lineCounter) Write(p []byte) (int, error) {
	*n += lineCounter(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// Requirement: MRTR-16
func TestNegativeMaxRoundsMeansNone(t *testing.T) {
	rounds := 0
	opts := &mcp.ClientOptions{MaxRounds: -1, Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }}
	c := newScriptedClient(t, opts, func(context.Context, *mcp.Request) (string, error) {
		if rounds++; rounds > 100 {
			return emptyContent, nil
		}
		return `{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}`, nil
	})
	if _, err := c.CallTool(t.Context(), "x", nil); err == nil || rounds != 1 {
		t.Errorf("got error %v after %d rounds, want an error after 1", err, rounds)
	}
}

// Requirement: ELI-10
func TestInvalidElicitResultsAreNotSent(t *testing.T) {
	var result *mcp.ElicitResult
	elicit := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { return result, nil }
	sent := 0
	params := ""
	c := newScriptedClient(t, &mcp.ClientOptions{Elicit: elicit, ElicitURL: elicit},
		func(_ context.Context, req *mcp.Request) (string, error) {
			if memberOf(t, req.Params, "inputResponses") != "" {
				sent++
				return emptyContent, nil
			}
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":` +
				params + `}}}`, nil
		})
	for _, params = range []string{`{"mode":"url","message":"m","url":"https://example.com/"}`,
		`{"message":"m","requestedSchema":{"type":"object"}}`} {
		for _, result = range []*mcp.ElicitResult{nil, {}, {Action: "perhaps"}} {
			_, err := c.CallTool(t.Context(), "x", nil)
			if err == nil || sent != 0 || strings.Contains(err.Error(), "internal error") {
				t.Errorf("%+v: got error %v and %d responses, want an error and none", result, err, sent)
			}
		}
	}
}

// Requirement: TOOL-06
func TestNilArgumentsAreSentAsAnEmptyObject(t *testing.T) {
	got := ""
	c := newScriptedClient(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		got = memberOf(t, req.Params, "arguments")
		return emptyContent, nil
	})
	if _, err := c.CallTool(t.Context(), "x", json.RawMessage(nil)); err != nil || got != "{}" {
		t.Errorf("got arguments %s, error %v, want {}", got, err)
	}
}
